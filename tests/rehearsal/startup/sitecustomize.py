"""Python imports this by itself: it gives every process of a rehearsal its pretend GPU,
and counts its lines.
"""

import os

if "COVERAGE_PROCESS_START" in os.environ:
    import coverage

    coverage.process_startup()
if "REHEARSAL_CARD" in os.environ and os.environ.get("CUDA_VISIBLE_DEVICES") != "":
    from tests.rehearsal import switch

    switch.on()
