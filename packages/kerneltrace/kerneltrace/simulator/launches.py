"""Launch a kernel of numba.cuda on the CPU: traced and judged, or, where it can't be
traced, on numba's simulator.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import math
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kerneltrace.errors import KernelError, KernelFault, TraceTooLarge
from kerneltrace.judge.findings import Finding
from kerneltrace.judge.kernel_trace import Trace
from kerneltrace.machine.traced_memory import Array, wrapped
from kerneltrace.run.launch import execute
from kerneltrace.run.launch_arguments import LaunchArguments, launch_arguments
from kerneltrace.simulator.device_array import (
    SharedWithHost,
    SimulatedArray,
    as_cuda_array,
    check_contiguous,
    is_cuda_array,
    unset,
)
from kerneltrace.simulator.harmless import without_effect
from kerneltrace.simulator.surroundings import as_compiled, numba_type
from kerneltrace.source.kernel_scope import python_function
from kerneltrace.tracing import trace_launch

MEMORY_BYTES = 1 << 30
MAX_STEPS = 1_000_000
MAY_BE_MEANT = ("untouched", "unwritten", "printed")
"""Kinds of findings that fail no test: a launch may leave a part of an array alone."""


class SimulatedLaunches:
    """What was launched: how many launches were traced, which were not, and the faults.

    A fault raises KernelFault at its launch. With `warn` a launch that isn't traced
    warns of it.
    """

    def __init__(self, *, warn: bool = True) -> None:
        self.traced = 0
        self.untraced: collections.Counter[str] = collections.Counter()
        """How many launches ran without being traced, by kernel and reason."""
        self.faults: list[str] = []
        """Of all launches, in order: the kernel with its file, and the finding."""
        self.suspects: list[str] = []
        """The same of what fails no test, as it has no effect by numba's rules: a race
        in which all write one value, a calculated index that counts from the end.
        """
        self._warn = warn
        # one launch at a time: a suite may launch from several threads
        self._lock = threading.RLock()

    def launch(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        args: Sequence[Any],
    ) -> None:
        """Run one launch of numba's kernel; KernelFault for a mistake that it makes.

        Host arrays are copied to the device and back, each on its own, as numba does.
        """
        copies_back: list[Callable[[], object]] = []
        prepared = _extended(kernel, args, copies_back)
        values = tuple(_on_device(value, copies_back) for value in prepared)
        __tracebackhide__ = True
        with self._lock:
            faults = self._run(kernel, grid, block, shared_bytes, values)
        for copy_back in copies_back:  # in numba's order
            copy_back()
        self.check([line for line, _ in faults], [fault for _, fault in faults])

    def check(self, lines: list[str], faults: Sequence[Finding]) -> None:
        """Note the faults of a launch, each in a line, and raise KernelFault if there
        are any.
        """
        __tracebackhide__ = True  # pytest shows the launch instead
        self.faults += lines
        if faults:
            raise KernelFault("\n".join(lines), tuple(faults))

    def _run(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        values: tuple[Any, ...],
    ) -> list[tuple[str, Finding]]:
        """Run a launch on memory of the device; each fault in a line, and as it is."""
        fn = python_function(kernel)
        is_debug = bool(getattr(kernel, "targetoptions", {}).get("debug"))
        before: LaunchArguments | None = None
        try:
            untyped = launch_arguments(fn, values)
            arguments = _typed(fn, untyped, signature_of(kernel))
            fn, device_arrays = as_compiled(fn, arguments.types)
            _refuse_overlap(fn, device_arrays, arguments.values.values())
            before = arguments.copy()
            trace = trace_launch(
                fn,
                grid,
                block,
                arguments,
                shared_bytes,
                MEMORY_BYTES,
                MAX_STEPS,
                divide="raise" if is_debug else "ignore",
            )
        except (KernelError, TraceTooLarge) as error:
            reason = str(error)
        else:
            faults, suspects = _judged(trace, before)
            if is_debug:
                _raise_division(faults)
            self.suspects += [_line(trace, fn, suspect) for suspect in suspects]
            if all(fault.kind != "raised" for fault in faults):
                self.traced += 1
                return [(_line(trace, fn, fault), fault) for fault in faults]
            # numba's simulator raises the kernel's own error, which a test may expect
            reason = faults[0].words
        if before is not None:
            for name, array in arguments.arrays.items():
                array[...] = before.arrays[name]
        self._note(fn, reason)
        if "this_grid" in fn.__code__.co_names and math.prod(grid) > 1:
            raise KernelError(
                f"{reason} Numba's simulator runs one block after the other, so that"
                " the grid can't wait in it."
            )
        try:
            _simulate_with_numba(
                fn, grid, block, shared_bytes, values, reason, is_debug
            )
        except Exception as error:
            error.add_note(f"It ran on numba's simulator, untraced: {reason}")
            raise
        return []

    def _note(self, fn: types.FunctionType, reason: str) -> None:
        place = f"{fn.__code__.co_filename}: {fn.__name__}"
        self.untraced[f"{place}: {reason}"] += 1
        if self._warn:
            words = f"{place} runs without being traced: {reason}"
            warnings.warn(words, RuntimeWarning, stacklevel=5)


class DivisionInDebug(ZeroDivisionError, FloatingPointError):
    """A division by zero in a kernel with debug=True: a ZeroDivisionError on a GPU, and
    a FloatingPointError on numba's simulator.
    """


def _raise_division(faults: Sequence[Finding]) -> None:
    """Raise what numba does for a division by zero with debug=True."""
    for fault in faults:
        is_raised = fault.kind == "raised" and "FloatingPointError" in fault.words
        if fault.kind == "division" or is_raised:
            raise DivisionInDebug(f"line {fault.line}: {fault.words}")


def _line(trace: Trace, fn: types.FunctionType, finding: Finding) -> str:
    """A finding with its place: in the kernel's file, or that of a device function, if
    only that has accesses in such a line.
    """
    file = fn.__code__.co_filename
    sites = trace._run.sites
    files = {site.file for site in sites if site.line == finding.line and site.file}
    if len(files) == 1:
        (file,) = files
    return f"{file}:{finding.line}: {fn.__name__}: {finding}"


def faults_of(trace: Trace) -> list[Finding]:
    """The mistakes of a launch that fail a test."""
    return [each for each in trace.findings if each.kind not in MAY_BE_MEANT]


def _judged(
    trace: Trace, before: LaunchArguments
) -> tuple[list[Finding], list[Finding]]:
    """The mistakes of a launch that fail a test, and those without an effect."""
    run = trace._run
    mistakes = faults_of(trace)
    racing = {each.array for each in mistakes if each.kind == "race"}
    harmless: set[str] = set()
    if racing and not run.diagnostics.ended:

        def again(watch: Any) -> object:
            return execute(run.settings, before.copy(), watch=watch)

        harmless = without_effect(run, again, racing)
    faults: list[Finding] = []
    suspects: list[Finding] = []
    for each in mistakes:
        is_race_without_effect = each.kind == "race" and each.array in harmless
        place = "outside", each.line, each.array
        is_counted = each.kind == "outside" and place not in run.diagnostics.mistakes
        has_effect = not (is_race_without_effect or is_counted)
        (faults if has_effect else suspects).append(each)
    return faults, suspects


# -- arguments


def signature_of(kernel: Any) -> tuple[Any, ...] | None:
    """Numba's types of the parameters of a kernel with one signature; None for
    another one.
    """
    signatures = vars(kernel).get("simulated_signatures", ())
    return tuple(map(numba_type, signatures[0])) if len(signatures) == 1 else None


def _typed(
    fn: types.FunctionType,
    arguments: LaunchArguments,
    signature: tuple[Any, ...] | None,
) -> LaunchArguments:
    """Numbers converted to the types of a signature; TypeError for an array that isn't
    the signature's, which a GPU would read as if it were.
    """
    if signature is None or len(signature) != len(arguments.values):
        return arguments
    values = dict(arguments.values)
    for (name, value), kind in zip(arguments.values.items(), signature, strict=True):
        values[name] = _converted(fn, name, value, kind)
    return replace(arguments, values=values, types=signature)


def _refuse_overlap(
    fn: types.FunctionType, device_arrays: Sequence[Array], values: Iterable[Any]
) -> None:
    """ValueError where a kernel gets a device array of its surroundings as an argument,
    too: neither a trace nor numba's simulator sees in the one what it writes to the
    other.
    """
    for value in values:
        if isinstance(value, tuple):
            _refuse_overlap(fn, device_arrays, value)
        elif isinstance(value, np.ndarray) and any(
            np.may_share_memory(value, array) for array in device_arrays
        ):
            raise ValueError(
                f"{fn.__name__} gets a device array as an argument and as a global"
                " variable, which isn't simulated. Pass it as an argument alone."
            )


def _converted(fn: types.FunctionType, name: str, value: Any, kind: Any) -> Any:
    from numba import types as numba_types
    from numba.np.numpy_support import as_dtype

    if isinstance(value, np.ndarray):
        dtype = as_dtype(kind.dtype) if hasattr(kind, "dtype") else None
        is_layout = {"C": value.flags.c_contiguous, "F": value.flags.f_contiguous}
        fits = is_layout.get(getattr(kind, "layout", ""), True)
        if dtype == value.dtype and getattr(kind, "ndim", 0) == value.ndim and fits:
            return value
        raise TypeError(
            f"{fn.__name__} is compiled for {name}: {kind}, and is launched with an"
            f" array of {value.dtype} in {value.ndim} dimensions."
        )
    if isinstance(kind, numba_types.Boolean):
        return bool(value)
    if isinstance(kind, numba_types.Integer):
        return wrapped(int(value), as_dtype(kind))
    return as_dtype(kind).type(value) if isinstance(kind, numba_types.Number) else value


def _extended(
    kernel: Any, args: Sequence[Any], copies_back: list[Callable[[], object]]
) -> list[Any]:
    """The arguments after the kernel's extensions have changed them."""
    prepared = []
    for arg in args:
        kind = None
        for extension in reversed(getattr(kernel, "extensions", None) or ()):
            kind, arg = extension.prepare_args(kind, arg, stream=0, retr=copies_back)
        prepared.append(arg)
    return prepared


def _on_device(value: Any, copies_back: list[Callable[[], object]]) -> Any:
    """An argument as the kernel takes it: an array as memory of the device."""
    hint = type(value).__name__ if hasattr(value, "to_device") else ""
    if hint in ("In", "Out", "InOut"):
        value = value.value
    if isinstance(value, SimulatedArray):
        return value.array
    if isinstance(value, SharedWithHost):
        return np.asarray(value)
    if type(value) is tuple:
        return tuple(_on_device(part, copies_back) for part in value)
    if is_cuda_array(value):
        return as_cuda_array(value).array
    if not isinstance(value, np.ndarray):
        return value
    check_contiguous(value)
    device = value.copy(order="K")
    if hint == "Out":
        unset(device)
    if hint != "In":
        copies_back.append(functools.partial(_copy, device, value))
    return device


def _copy(source: Array, target: Array) -> None:
    target[...] = source


# -- without a trace


def _simulate_with_numba(
    fn: types.FunctionType,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    shared_bytes: int,
    values: tuple[Any, ...],
    reason: str,
    is_debug: bool,
) -> None:
    """Run a launch on numba's simulator; KernelError with the reason against a trace
    where there is none.
    """
    try:
        simulator: Any = importlib.import_module("numba.cuda.simulator.kernel")
    except ImportError:
        raise KernelError(reason) from None
    simulated = simulator.FakeCUDAKernel(fn, device=False, debug=is_debug)
    with _cuda_swapped_in_closures(simulator):
        simulated[grid, block, 0, shared_bytes](*values)


@contextlib.contextmanager
def _cuda_swapped_in_closures(simulator: Any) -> Iterator[None]:
    """Let numba's simulator put its own `cuda` also into functions that have it from
    the function around them, for one launch; it swaps globals only.
    """
    cuda: Any = importlib.import_module("numba.cuda")
    swapped_globals = simulator.swapped_cuda_module
    cells: list[types.CellType] = []

    def swapped(fn: types.FunctionType, module: Any) -> Any:
        for cell in fn.__closure__ or ():
            if cell.cell_contents is cuda:
                cells.append(cell)
                cell.cell_contents = module
        return swapped_globals(fn, module)

    simulator.swapped_cuda_module = swapped
    try:
        yield
    finally:
        simulator.swapped_cuda_module = swapped_globals
        for cell in cells:
            cell.cell_contents = cuda


def call_in_simulator(kernel: Any, args: Sequence[Any], original: Any) -> Any:
    """Call a device function from a kernel that runs on numba's simulator; elsewhere
    numba's own error for a kernel without a grid.
    """
    simulator: Any = importlib.import_module("numba.cuda.simulator.kernel")
    context = simulator._get_kernel_context()
    if context is None:
        return original(kernel, *args)
    fn = python_function(kernel)
    with simulator.swapped_cuda_module(fn, context):
        return fn(*args)


# -- kernels in CUDA C++


def launch_cuda_cpp(
    launches: SimulatedLaunches,
    path: Path,
    name: str,
    constants: Mapping[str, Any],
    config: Any,
    args: Sequence[Any],
) -> Trace:
    """Run a kernel of a `.cu` file; the trace, or KernelFault for a mistake."""
    from kerneltrace.tracing import trace

    grid, block, _, shared_bytes = (*config, 0, 0)[:4]
    copies_back: list[Callable[[], object]] = []
    values = [_on_device(value, copies_back) for value in args]
    traced = trace(
        path,
        grid,
        block,
        *values,
        blocks="all",
        shared_bytes=shared_bytes,
        schedules=1,
        name=name,
        constants=constants,
        memory_bytes=MEMORY_BYTES,
        max_steps=MAX_STEPS,
    )
    for copy_back in copies_back:
        copy_back()
    launches.traced += 1
    faults = faults_of(traced)
    kernel = name or traced.kernel
    launches.check(
        [f"{path}:{fault.line}: {kernel}: {fault}" for fault in faults], faults
    )
    return traced
