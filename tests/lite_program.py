"""Run the cells of a notebook for browsers, with run_without.py: python run_without.py
lite_program.py reads {"cells": [[id, source], ...]} from the file LITE_CELLS.
"""

import json
import os
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("import browser_lab as lab\nfrom IPython.display import display")
for name, source in json.loads(
    Path(os.environ["LITE_CELLS"]).read_text(encoding="utf-8")
)["cells"]:
    print(f"--- {name}", flush=True)
    done = shell.run_cell(source)
    if not done.success:
        raise SystemExit(
            f"cell {name} fails: {done.error_in_exec or done.error_before_exec!r}"
        )
    if hasattr(done.result, "_repr_html_"):
        done.result._repr_html_()
