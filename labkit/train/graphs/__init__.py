"""What torch.compile makes of a function: where the graph breaks, which kernels come
out, what can compile here.
"""

from labkit.train.graphs.compiling import (
    captured as captured,
    compiled as compiled,
    forget_compiled as forget_compiled,
    fresh_cache as fresh_cache,
    missing as missing,
)
from labkit.train.graphs.operators import operators as operators
