"""CUDA C++ compiled with g++ and run on the CPU: `Program(source, options).launch(kernel, grid, block, *arguments)`."""

import ctypes
import hashlib
import mmap
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") if sys.platform == "linux" else None  # fibers and signals are done as Linux has them
CHECKS = ["-fsanitize=bounds,alignment", "-fsanitize-undefined-trap-on-error"]
FLAGS = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w", *CHECKS]
SCALARS = {"int": np.int32, "long long": np.int64, "float": np.float32}
_KERNEL = re.compile(r'extern "C" __global__ void\s*(?:__launch_bounds__\([^{]*?\)\s*)?(\w+)\s*\(([^)]*)\)\s*\{')


class Fault(Exception):
    """A kernel waited at a barrier for ever, or touched what it must not."""


class Program:
    """The kernels of one CUDA C++ source, compiled for the CPU into `folder`."""

    def __init__(self, source, folder, options=()):
        self.parameters = {name: [p.strip() for p in text.split(",")] for name, text in _KERNEL.findall(source)}
        code = '#include "cuda_on_cpu.h"\n' + source + "".join(_entry(*item) for item in self.parameters.items())
        path = folder / hashlib.sha1((code + str(options)).encode()).hexdigest()[:16]
        path.with_suffix(".cpp").write_text(code, encoding="utf-8")
        command = [COMPILER, *FLAGS, *options, "-I", HERE, "-o", path.with_suffix(".so"), path.with_suffix(".cpp")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.library = ctypes.CDLL(str(path.with_suffix(".so")))

    def launch(self, kernel, grid, block, *arguments, backwards=False):
        """Run a kernel on arrays of `guarded` and numbers; raises Fault."""
        shape = [*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block))]
        values = [_argument(a, p) for a, p in zip(arguments, self.parameters[kernel], strict=True)]
        status = getattr(self.library, f"launch_{kernel}")(*shape, int(backwards), *values)
        if status:
            what = "waits at a barrier for ever" if status == -1 else f"made a forbidden access (signal {status})"
            raise Fault(f"{kernel} {what}")


def _entry(name, parameters):
    names = ", ".join(p.split()[-1].lstrip("*") for p in parameters)
    return (
        f'\nextern "C" int launch_{name}(int gx, int gy, int gz, int bx, int by, int bz, int backwards, '
        f"{', '.join(parameters)})\n"
        f"{{ return cuda_on_cpu::launch({{gx, gy, gz}}, {{bx, by, bz}}, backwards, [&] {{ {name}({names}); }}); }}"
    )


def _argument(value, parameter):
    """A GPU's launch takes bytes as they come: a number of another type than the parameter's is an error here."""
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if "*" in parameter:
        return ctypes.c_void_p(value.data_ptr())
    expected = SCALARS[parameter.rsplit(" ", 1)[0]]
    assert type(value) is expected, f"{parameter} takes {expected}, got {type(value)}"
    return np.ctypeslib.as_ctypes_type(expected)(value.item())


def guarded(values):
    """A copy of an array, on an address that 16 divides, whose end borders on memory that nobody may touch."""
    values = np.ascontiguousarray(values)
    page = mmap.PAGESIZE
    room = -(-max(values.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, room + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + room), page, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    offset = (room - values.nbytes) // 16 * 16
    array = np.frombuffer(memory, dtype=values.dtype, count=values.size, offset=offset).reshape(values.shape)
    array[...] = values
    return array


def unwritten(shape, dtype=np.float32):
    """A guarded array filled with NaN, or with the byte 0xff: what a kernel leaves out is seen."""
    fill = np.nan if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).max
    return guarded(np.full(shape, fill, dtype))
