"""Compile one kernel from standard input to standard output, both pickled: for a process whose numba simulates."""

from __future__ import annotations

import pickle
import sys

from labkit.core.errors import LabError
from labkit.gpu.compiler.from_numba import to_ltoir


def main() -> None:
    """Answer with NVVM's link-time code, or with the error that says why there is none."""
    try:
        answer: bytes | LabError = to_ltoir(pickle.load(sys.stdin.buffer))
    except LabError as error:
        answer = error
    sys.stdout.buffer.write(pickle.dumps(answer))


if __name__ == "__main__":
    main()
