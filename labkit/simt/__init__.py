"""Run a CUDA kernel's Python source on the CPU and count what a GPU would do."""

from labkit.simt.program import python_function
from labkit.simt.result import Request, Trace
from labkit.simt.trace import trace
from labkit.simt.trouble import Finding

__all__ = ["Finding", "Request", "Trace", "python_function", "trace"]
