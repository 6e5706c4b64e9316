"""Compile CUDA C++ and numba kernels on a machine without a GPU, and read what the
compiler made of them.
"""

from kerneltrace.compiler.compiled import Compiled, KernelResources
from kerneltrace.compiler.cplusplus import compile_cuda
from kerneltrace.compiler.from_numba import compile_numba

__all__ = ["Compiled", "KernelResources", "compile_cuda", "compile_numba"]
