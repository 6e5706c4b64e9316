"""tiles.trace beside triton-viz's sanitizer: mistakes found of those that the tests
plant, false alarms, and seconds.

usage: tiles.py             a line for each, triton-viz's where it is installed, with
Triton and torch, and imports tiles.py triton-viz  triton-viz's counts alone, on one
line; needs TRITON_INTERPRET=1

Either tool has found a mistake when it reports or raises anything: the kind and the
line are not compared.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from test_kerneltrace.tile_kernels import launches
from test_kerneltrace.tile_mistakes import PLANTED, launch_of

LONGEST_S = 10
"""For one kernel: a kernel that waits for ever is stopped, and counts as not found."""

Case = tuple[Any, Any, tuple[Any, ...], dict[str, Any]]


def cases() -> tuple[list[Case], list[Case]]:
    """Kernels with a mistake, and correct ones, each with grid, arguments and
    constants.
    """
    right = [make() for make in launches().values()]
    return [launch_of(name) for name in PLANTED], [
        (launch.kernel, launch.grid, launch.args, launch.constants) for launch in right
    ]


def counted(reports: Callable[..., bool]) -> tuple[int, int, float]:
    """How many of the planted and of the correct kernels a tool reports, and the
    seconds for all of them.
    """
    start = time.perf_counter()
    planted, right = (sum(reports(*case) for case in some) for some in cases())
    return planted, right, time.perf_counter() - start


def ours(
    kernel: Any, grid: Any, args: tuple[Any, ...], constants: dict[str, Any]
) -> bool:
    """Whether tiles.trace has a finding."""
    from kerneltrace import tiles

    return not tiles.trace(kernel, grid, *args, **constants).ok


def theirs(
    kernel: Any, grid: Any, args: tuple[Any, ...], constants: dict[str, Any]
) -> bool:
    """Whether triton-viz's sanitizer reports something, or what runs
    under it raises.
    """
    viz: Any = importlib.import_module("triton_viz")
    torch: Any = importlib.import_module("torch")

    def stop(*_: Any) -> None:
        raise TimeoutError

    def as_tensor(arg: Any) -> Any:
        if not isinstance(arg, np.ndarray):
            return arg
        # torch takes no negative strides
        return torch.from_numpy(arg if arg.strides[-1] > 0 else arg.copy())

    tensors = [as_tensor(arg) for arg in args]
    output = io.StringIO()
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_S)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            viz.clear()
            viz.trace("sanitizer")(kernel)[grid](*tensors, **constants)
    except TimeoutError:
        return False
    except (Exception, SystemExit):
        return True
    finally:
        signal.alarm(0)
    return "out-of-bound" in output.getvalue().lower()


def main() -> int:
    """Print a line for each tool; 1 where tiles.trace misses a mistake, or finds one in
    a correct kernel.
    """
    short = False
    for name, result in (
        ("tiles.trace", counted(ours)),
        ("triton-viz", _of_triton_viz()),
    ):
        if isinstance(result, str):
            print(f"{name}: {result}")
        else:
            planted, wrong, seconds = result
            short |= name == "tiles.trace" and (planted < len(PLANTED) or wrong > 0)
            print(
                f"{name}: {planted} of {len(PLANTED)} mistakes, {wrong} false alarms,"
                f" {seconds:.1f} s"
            )
    return int(short)


def _of_triton_viz() -> tuple[int, int, float] | str:
    command = [sys.executable, "-m", "benchmarks.tiles", "triton-viz"]
    run = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return (
            "skipped, since it doesn't start here"
            f" ({run.stderr.strip().splitlines()[-1]})"
        )
    planted, wrong, seconds = run.stdout.split()[-3:]
    return int(planted), int(wrong), float(seconds)


if __name__ == "__main__":
    if sys.argv[1:] == ["triton-viz"]:
        importlib.import_module("triton_viz")
        print(*counted(theirs))
    else:
        sys.exit(main())
