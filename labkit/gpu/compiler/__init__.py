"""Compile CUDA C++ and numba kernels on a machine without a GPU, and read what the compiler made of them."""

from labkit.gpu.compiler.compiled import Compiled, KernelResources
from labkit.gpu.compiler.cplusplus import compile_cuda
from labkit.gpu.compiler.from_numba import compile_numba

__all__ = ["Compiled", "KernelResources", "compile_cuda", "compile_numba"]
