"""CuPy for a rehearsal: the arrays that exercises stand in for it with, and kernels
that NVRTC compiles, traced.
"""

import contextlib
import ctypes
import re
import time
from types import SimpleNamespace

import numpy as np
import torch

from exercises.nb05.cupy_stand_in import StandInArray, StandInModule
from kerneltrace import compile_cuda, trace
from kerneltrace.errors import TraceTooLarge
from tests.rehearsal.libraries import WITHOUT
from tests.rehearsal.torch_cuda import CAPABILITY, SHARED_BYTES

__version__ = "14.0.1"
# of a launch; of a larger one the first block alone runs, for a while
RUN_THREADS = 2**15
# after which a kernel's launches, which are then for their time, are treated like
# larger ones
RUN_S = 20.0


class ndarray(StandInArray):  # noqa: N801 - CuPy's name
    host = property(lambda self: self._values)
    __cuda_array_interface__ = property(
        lambda self: {"shape": self.shape, "data": (self.host.ctypes.data, False)}
    )

    def __dlpack_device__(self):
        return (2, 0)  # kDLCUDA

    def __dlpack__(self, **options):
        return torch.ops.rehearsal.as_cuda(torch.from_numpy(self.host)).__dlpack__(
            **options
        )

    def set(self, values, stream=None):
        if not isinstance(values, np.ndarray) or (values.dtype, values.shape) != (
            self.dtype,
            self.shape,
        ):
            raise TypeError(
                "Only a numpy.ndarray of the same shape and dtype can be set to a"
                " cupy.ndarray"
            )
        self.host[...] = values


class Arrays(StandInModule):
    def wrap(self, value):
        return (
            ndarray(value, self)
            if isinstance(value, np.ndarray | np.generic)
            else super().wrap(value)
        )


_arrays = Arrays()


def __getattr__(name):
    return getattr(_arrays, name)


def is_available():
    return True


def _random(size=None, dtype=np.float64, seed=0):
    return _arrays.wrap(np.random.default_rng(seed).random(size, dtype))


def _generator(seed):
    return SimpleNamespace(
        random=lambda size=None, dtype=np.float64: _random(size, dtype, seed)
    )


random = SimpleNamespace(random=_random, default_rng=_generator)


class Stream(contextlib.nullcontext):
    def __init__(self, non_blocking=False):
        super().__init__(self)

    @classmethod
    def from_external(cls, stream):
        return cls(bool(stream.__cuda_stream__()))


class Event:
    def record(self, stream=None):
        self.at_s = time.perf_counter()

    def synchronize(self):
        pass


cuda = SimpleNamespace(
    Stream=Stream,
    Event=Event,
    get_elapsed_time=lambda begin, end: 1e3 * (end.at_s - begin.at_s),
    using_allocator=lambda allocator: contextlib.nullcontext(),
)


freed = 0  # how often the pool was asked to give its memory back


def _free_all_blocks():
    global freed
    freed += 1


def get_default_memory_pool():
    return SimpleNamespace(total_bytes=lambda: 0, free_all_blocks=_free_all_blocks)


def fuse():
    return lambda function: function


class ElementwiseKernel:
    """Of those whose C++ is Python too."""

    def __init__(self, in_params, out_params, operation, name):
        self.names = [parameter.split()[-1] for parameter in in_params.split(",")]
        self.expression = operation.partition("=")[2].strip()

    def __call__(self, *arguments):
        return eval(self.expression, {}, dict(zip(self.names, arguments, strict=True)))


class ReductionKernel(ElementwiseKernel):
    def __init__(
        self,
        in_params,
        out_params,
        map_expr,
        reduce_expr,
        post_map_expr,
        identity,
        name,
    ):
        super().__init__(in_params, out_params, "=" + map_expr, name)
        self.reduce = reduce_expr

    def __call__(self, array):
        mapped = eval(
            self.expression, {"fabs": np.abs}, {self.names[0]: array.host}
        ).ravel()
        total = mapped[0]
        for value in mapped[1:]:
            total = eval(
                self.reduce, {"max": max, "min": min}, {"a": total, "b": value}
            )
        return _arrays.wrap(total)


class RawModule:
    def __init__(self, *, code, options=()):
        if not isinstance(options, tuple):
            raise TypeError("options must be a tuple of str")
        self.compiled = compile_cuda(
            code, compute_capability=CAPABILITY, options=options
        )

    def get_function(self, name):
        return RawKernel("", name, compiled=self.compiled)


class RawKernel:
    max_dynamic_shared_size_bytes = 48 << 10

    def __init__(self, code, name, options=(), compiled=None):
        self.compiled = compiled or compile_cuda(
            code, compute_capability=CAPABILITY, options=options
        )
        self.name = name
        self.ran_s = 0.0

    def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
        if "new driver" in WITHOUT:  # github.com/Project-MONAI/MONAI/issues/3541
            words = (
                "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX was compiled with"
                " an unsupported toolchain."
            )
            raise RuntimeError(words)
        most = self.compiled.kernels[self.name].max_threads
        if np.prod(block) > most or shared_mem > min(
            self.max_dynamic_shared_size_bytes, SHARED_BYTES
        ):
            raise RuntimeError(
                f"CUDA_ERROR_INVALID_VALUE: a block of {block} with {shared_mem} B of"
                " shared memory"
            )
        declared = re.search(
            rf"\b{self.name}\s*\(([^()]*)\)", "\n".join(self.compiled.source.values())
        )[1].split(",")
        values = [
            _argument(value, wanted)
            for value, wanted in zip(args, declared, strict=True)
        ]
        sizes = {"shared_bytes": shared_mem, "schedules": 1, "blocks": "all"}
        if np.prod(grid) * np.prod(block) <= RUN_THREADS and self.ran_s < RUN_S:
            began_s = time.monotonic()
            trace(
                self.compiled,
                tuple(grid),
                tuple(block),
                *values,
                name=self.name,
                **sizes,
            )
            self.ran_s += time.monotonic() - began_s
            return
        one = (1,) * len(grid)  # and of its loops as much as a second holds
        with contextlib.suppress(TraceTooLarge):
            trace(
                self.compiled,
                one,
                tuple(block),
                *values,
                name=self.name,
                memory_bytes=10**8,
                **sizes,
            )


def _argument(value, declared):
    """Arrays, and what lies at an address, as `trace` takes them; numbers must have the
    parameter's type.
    """
    if isinstance(value, np.uint64):
        n = ctypes.CDLL(None).malloc_usable_size(ctypes.c_void_p(int(value)))
        # other numbers are left as bytes
        known = re.search(r"\b(float|double|int|long long)\b", declared)
        dtype = np.dtype(
            {"float": "f4", "double": "f8", "int": "i4", "long long": "i8"}[known[1]]
            if known
            else "u1"
        )
        return np.ctypeslib.as_array((ctypes.c_ubyte * n).from_address(int(value)))[
            : n - n % 8
        ].view(dtype)
    assert isinstance(value, ndarray | np.generic), (
        f"a launch takes bytes as they come, and {value!r} has no type"
    )
    return value.host if isinstance(value, ndarray) else value
