"""`simulate`: let numba.cuda launch its kernels on the CPU for a while.

numba.cuda stays what it is, with its decorators, its device functions and its types;
only what needs a driver is replaced: arrays, streams, devices, and launches.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kerneltrace.simulator import device_array, devices
from kerneltrace.simulator.launches import SimulatedLaunches, call_in_simulator
from kerneltrace.simulator.surroundings import (
    as_compiled,
    exec_with_source,
    numba_type,
)
from kerneltrace.source.front_end import is_simulator, set_for_device
from kerneltrace.source.kernel_scope import python_function

THREADS_OF_FORALL = 128
_HOST_NAMES: dict[str, Any] = {
    "DeviceNDArray": device_array.SimulatedArray,
    "DeviceNDArrayBase": device_array.SimulatedArray,
    "Reduce": device_array.SimulatedReduction,
    "_auto_device": device_array.auto_device,
    "as_cuda_array": device_array.as_cuda_array,
    "auto_device": device_array.auto_device,
    "close": devices.nothing,
    "cuda_error": devices.nothing,
    "current_context": devices.current_context,
    "default_stream": devices.SimulatedStream,
    "defer_cleanup": contextlib.nullcontext,
    "detect": devices.detect,
    "device_array": device_array.device_array,
    "device_array_like": device_array.device_array_like,
    "event": devices.SimulatedEvent,
    "event_elapsed_time": devices.SimulatedEvent.elapsed_time,
    "external_stream": devices.SimulatedStream,
    "from_cuda_array_interface": device_array.from_cuda_array_interface,
    "get_context": devices.current_context,
    "get_current_device": devices.get_current_device,
    "get_version": devices.driver_version,
    "gpus": devices.SimulatedDevices(),
    "is_available": devices.yes,
    "is_bfloat16_supported": devices.yes,
    "is_cuda_array": device_array.is_cuda_array,
    "is_float16_supported": devices.yes,
    "is_supported_version": devices.yes,
    "legacy_default_stream": devices.SimulatedStream,
    "list_devices": devices.SimulatedDevices,
    "managed_array": device_array.mapped_array,
    "mapped": device_array.mapped,
    "mapped_array": device_array.mapped_array,
    "mapped_array_like": device_array.mapped_array_like,
    "per_thread_default_stream": devices.SimulatedStream,
    "pinned": device_array.pinned,
    "pinned_array": device_array.pinned_array,
    "pinned_array_like": device_array.empty_like,
    "profile_start": devices.nothing,
    "profile_stop": devices.nothing,
    "profiling": contextlib.nullcontext,
    "reduce": device_array.SimulatedReduction,
    "reset": devices.nothing,
    "select_device": devices.current_context,
    "stream": devices.SimulatedStream,
    "synchronize": devices.nothing,
    "to_device": device_array.to_device,
}
"""What is replaced wherever numba.cuda has that name."""
_HOMES = (
    "numba.cuda",
    "numba.cuda.api",
    "numba.cuda.cudadrv.devicearray",
    "numba.cuda.cudadrv.devices",
    "numba.cuda.cudadrv.driver",
    "numba.cuda.device_init",
    "numba.cuda.dispatcher",
    "numba_cuda_mlir.cuda",
    "numba_cuda_mlir.numba_cuda",
    "numba_cuda_mlir.numba_cuda.api",
    "numba_cuda_mlir.numba_cuda.cudadrv.devicearray",
    "numba_cuda_mlir.numba_cuda.cudadrv.devices",
    "numba_cuda_mlir.numba_cuda.cudadrv.driver",
)
_RESOURCES = (
    "get_const_mem_size",
    "get_local_mem_per_thread",
    "get_max_threads_per_block",
    "get_regs_per_thread",
    "get_shared_mem_per_block",
)
"""Methods of kernels that ask a driver what the compiled kernel needs."""
_KERNELS = {
    "numba.cuda.dispatcher": "CUDADispatcher",
    "numba_cuda_mlir.descriptor": "MLIRDispatcher",
}
"""The classes of kernels, by module."""


@contextlib.contextmanager
def simulate(*, warn: bool = True) -> Iterator[SimulatedLaunches]:
    """Let kernels of numba.cuda run on the CPU, each launch traced and judged, and
    numba's host functions work without a GPU.

    `kernel[grid, block, stream, shared_bytes](*args)` raises KernelFault, an
    AssertionError, for a race, an access out of bounds, a barrier that not all threads
    reach and other mistakes, each with its line; the results are in the arrays by then.
    What `trace` doesn't support runs on numba's own simulator, and a RuntimeWarning
    says so, unless `warn` is false. Gives the launches: how many were `traced`, which
    were `untraced` and why, and the `faults`. Streams and events order nothing, as
    each launch ends before it returns, and memory that nobody wrote holds no zeros.
    Raises RuntimeError where numba.cuda was imported with NUMBA_ENABLE_CUDASIM=1.
    """
    if is_simulator():
        raise RuntimeError(
            "numba.cuda is its own simulator in this process, in which launches can't"
            " be traced. Import kerneltrace and call simulate() without"
            " NUMBA_ENABLE_CUDASIM."
        )
    launches = SimulatedLaunches(warn=warn)
    with contextlib.ExitStack() as stack:
        for home in _HOMES:
            module = _module(home)
            for name, stand_in in _HOST_NAMES.items():
                if name in vars(module):
                    _replace(stack, module, name, stand_in)
        for home, name in _KERNELS.items():
            kernels = getattr(_module(home), name, None)
            if kernels is not None:
                methods = _launching(launches) | _compiling(kernels)
                for method, stand_in in methods.items():
                    _replace(stack, kernels, method, stand_in)
        _replace(stack, _module("numba.cuda.deviceufunc"), "exec", exec_with_source)
        yield launches


@contextlib.contextmanager
def simulator_setting() -> Iterator[None]:
    """Let numba's setting say that it is its simulator, for tests that look at it; not
    to `cuda.jit`, which then makes kernels of that.
    """
    settings = [
        importlib.import_module(name)
        for name in ("numba.core.config", "numba.cuda.core.config")
    ]
    cuda: Any = importlib.import_module("numba.cuda")
    jit = cuda.jit

    def jit_for_device(*args: Any, **options: Any) -> Any:
        with set_for_device():
            made = jit(*args, **options)
        is_decorator = isinstance(made, types.FunctionType)
        return functools.partial(_as_device, made) if is_decorator else made

    def _as_device(decorator: Any, function: Any) -> Any:
        with set_for_device():
            return decorator(function)

    def _set(value: int) -> None:
        for setting in settings:
            setting.ENABLE_CUDASIM = value  # type: ignore[attr-defined]

    with contextlib.ExitStack() as stack:
        _replace(stack, cuda, "jit", jit_for_device)
        kernels = importlib.import_module("numba.cuda.dispatcher").CUDADispatcher
        _replace(stack, kernels, "_device", property(_is_device_function))
        stack.callback(_set, 0)
        _set(1)
        yield


def _is_device_function(kernel: Any) -> bool:
    """What the simulator's kernels say of themselves."""
    return bool(kernel.targetoptions.get("device"))


def _module(name: str) -> Any:
    """A module of numba or its successor; an empty one where it isn't installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return types.ModuleType(name)


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Replace a name of a module or a class until the stack unwinds."""
    if name in vars(owner):
        stack.callback(setattr, owner, name, vars(owner)[name])
    else:  # inherited
        stack.callback(delattr, owner, name)
    setattr(owner, name, value)


def _launching(launches: SimulatedLaunches) -> dict[str, Any]:
    """Stand-ins for the methods that launch numba's kernels, by name."""

    def configure(
        self: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0
    ) -> Callable[..., None]:
        grid, block = _dimensions(griddim, blockdim)
        return functools.partial(_launch, launches, self, grid, block, sharedmem)

    def getitem(self: Any, config: Any) -> Callable[..., None]:
        if not isinstance(config, tuple) or len(config) not in (2, 3, 4):
            raise ValueError("must specify at least the griddim and blockdim")
        return configure(self, *config)

    def forall(
        self: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0
    ) -> Callable[..., None]:
        if ntasks < 0:
            raise ValueError(f"Can't create ForAll with negative task count: {ntasks}")
        if ntasks == 0:
            return devices.nothing
        threads = tpb or THREADS_OF_FORALL
        return configure(self, -(-ntasks // threads), threads, stream, sharedmem)

    return {"__getitem__": getitem, "configure": configure, "forall": forall}


def _compiling(dispatcher: Any) -> dict[str, Any]:
    """Stand-ins for the methods that compile for a device, by name; a kernel keeps its
    signatures instead.
    """
    call = dispatcher.__call__
    disable_compile = dispatcher.disable_compile

    def compile_kernel(self: Any, signature: Sequence[Any]) -> None:
        signatures = getattr(self, "simulated_signatures", ())
        self.simulated_signatures = (*signatures, tuple(signature))
        as_compiled(python_function(self), tuple(map(numba_type, signature)))

    def accept_no_more(self: Any, val: bool = True) -> None:
        if not hasattr(self, "simulated_signatures"):
            disable_compile(self, val)

    def refuse(self: Any, *args: Any) -> None:
        raise NotImplementedError(
            "What a compiled kernel needs is known with a GPU only, and this one is"
            " simulated."
        )

    return {
        **dict.fromkeys(_RESOURCES, refuse),
        "__call__": lambda self, *args: call_in_simulator(self, args, call),
        "compile": compile_kernel,
        "disable_compile": accept_no_more,
        "specialize": lambda self, *args: self,
    }


def _dimensions(griddim: Any, blockdim: Any) -> Any:
    """A grid and a block of three numbers each, judged as numba judges them."""
    errors: Any = importlib.import_module("numba.cuda.errors")
    return errors.normalize_kernel_dimensions(griddim, blockdim)


def _launch(
    launches: SimulatedLaunches,
    kernel: Any,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    shared_bytes: int,
    *args: Any,
) -> None:
    launches.launch(kernel, grid, block, shared_bytes, args)
