"""Run a CUDA kernel's Python source on the CPU and count what a GPU would do."""

from labkit.gpu.trace.diagnostics import Finding
from labkit.gpu.trace.kernel_scope import python_function
from labkit.gpu.trace.kernel_trace import Request, Trace
from labkit.gpu.trace.tracing import trace

__all__ = ["Finding", "Request", "Trace", "python_function", "trace"]
