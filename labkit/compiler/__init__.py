"""Compile CUDA C++ and numba kernels on a machine without a GPU, and read what the compiler made of them."""

from labkit.compiler.cplusplus import compile_cuda
from labkit.compiler.numba_kernels import compile_numba
from labkit.compiler.result import Compiled, KernelResources

__all__ = ["Compiled", "KernelResources", "compile_cuda", "compile_numba"]
