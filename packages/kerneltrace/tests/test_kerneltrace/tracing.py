"""What the tests of traces share."""

import inspect
import linecache
import math
import sys

import numpy as np
import pytest
from numba import cuda

from kerneltrace import trace

not_on_macos = pytest.mark.skipif(
    sys.platform == "darwin", reason="NVIDIA has no compiler for macOS"
)
# numba-cuda 0.30.4 looks for an AssertionError where Python 3.14 has the class of it
with_assert = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="numba-cuda can't read assert on Python 3.14"
)


def run(kernel, blocks, threads, *args, **options):
    """The trace of a kernel in which no mistake may be found."""
    traced = trace(kernel, blocks, threads, *args, **options)
    assert traced.findings == (), [str(finding) for finding in traced.findings]
    return traced


def filled(kernel, blocks, threads, n, *args, dtype=np.int64, **options):
    """What a correct kernel writes into an array of n zeros, its first parameter."""
    out = np.zeros(n, dtype)
    run(kernel, blocks, threads, out, *args, **options)
    return out.tolist()


def made_in_a_cell(source, **names):
    """The function `k` of a source that is in no file, kept where IPython keeps its
    cells.
    """
    name = f"<cell {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {"__name__": "__main__", "cuda": cuda, "math": math, "np": np, **names}
    exec(compile(source, name, "exec"), scope)
    return scope["k"]


def found(kernel, grid, block, *args, kind, **options):
    """The only finding of a kernel, which must be of one kind and in the line that is
    marked with `# here`.
    """
    findings = trace(kernel, grid, block, *args, **options).findings
    assert [finding.kind for finding in findings] == [kind], [
        str(finding) for finding in findings
    ]
    finding = findings[0]
    lines, first = inspect.getsourcelines(kernel)
    marked = [first + n for n, line in enumerate(lines) if "# here" in line]
    assert finding.line == (marked[0] if marked else 0)
    return finding
