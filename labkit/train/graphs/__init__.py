"""What torch.compile makes of a function: where the graph breaks, which kernels come out, what can compile here."""

from labkit.train.graphs.breaking import breaks
from labkit.train.graphs.capture import captured
from labkit.train.graphs.compiling import compiled, fresh_cache, missing
from labkit.train.graphs.operators import fusion, operators

__all__ = ["breaks", "captured", "compiled", "fresh_cache", "fusion", "missing", "operators"]
