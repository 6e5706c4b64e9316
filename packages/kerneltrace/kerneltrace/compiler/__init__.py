"""Compile CUDA C++ and numba kernels on a machine without a GPU, and read what the
compiler made of them.
"""
