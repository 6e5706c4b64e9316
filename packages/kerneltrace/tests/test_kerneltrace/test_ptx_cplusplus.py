"""CUDA C++ as people write it: right results, counts by hand, no false alarm, and each
planted mistake in its line.
"""

import importlib

import numpy as np
import pytest

from kerneltrace import compile_cuda, trace
from test_kerneltrace.tracing import not_on_macos

pytestmark = [pytest.mark.slow, not_on_macos]  # compiles kernels
PARTS = (
    "reductions",
    "shared",
    "warps",
    "language",
    "numbers",
    "atomics",
    "matrices",
    "asynchronous",
)
CASES = {
    name: case
    for part in PARTS
    for name, case in importlib.import_module(
        f"test_kerneltrace.cplusplus.{part}"
    ).CASES.found.items()
}
FLAWS = [
    (name, number) for name, case in CASES.items() for number in range(len(case.flaws))
]


def traced(case, source):
    """The trace of a case's launch with a source, and the arguments after it."""
    args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in case.args]
    options = dict(case.options)
    if "capability" in options:
        source = compile_cuda(source, compute_capability=options.pop("capability"))
    return trace(source, case.grid, case.block, *args, **options), args


@pytest.mark.parametrize("name", CASES)
def test_a_correct_kernel_computes_what_it_should_and_has_no_mistake(name):
    case = CASES[name]
    outcome, args = traced(case, case.source)
    assert outcome.findings == (), outcome
    for number, wanted in case.want.items():
        np.testing.assert_allclose(args[number], wanted, rtol=case.rtol, atol=1e-6)
    for key, want in case.counts.items():
        array, _, kind = key.rpartition(" ")
        actual = outcome.count(array, kind=kind)
        for what in ("requests", "sectors", "wavefronts", "ways", "collisions"):
            assert getattr(want, what) in (0, getattr(actual, what)), (key, what)


def lines_of(source, words):
    """The lines with these words; of a statement in asm, the others too: NVRTC 13.2
    names its last line, others its first.
    """
    lines = []
    is_in_asm = False
    for line, text in enumerate(source.splitlines(), 1):
        if words in text:
            is_in_asm = "asm volatile" in text
            lines.append(line)
        elif is_in_asm:
            lines.append(line)
        is_in_asm = is_in_asm and not text.rstrip().endswith(";")
    return lines


@pytest.mark.parametrize(("name", "number"), FLAWS)
def test_a_planted_mistake_is_found_in_its_line(name, number):
    case = CASES[name]
    flaw = case.flaws[number]
    assert flaw.old in case.source
    source = case.source.replace(flaw.old, flaw.new, 1)
    lines = lines_of(source, flaw.at)
    findings = traced(case, source)[0].findings
    assert any(
        each.kind == flaw.kind and each.line in lines and flaw.words in each.words
        for each in findings
    ), findings
