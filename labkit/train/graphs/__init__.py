"""What torch.compile makes of a function: where the graph breaks, which kernels come
out, what can compile here.
"""

from labkit.train.graphs.compiling import (
    captured,
    compiled,
    forget_compiled,
    fresh_cache,
    missing,
)
from labkit.train.graphs.operators import operators

__all__ = [
    "captured",
    "compiled",
    "forget_compiled",
    "fresh_cache",
    "missing",
    "operators",
]
