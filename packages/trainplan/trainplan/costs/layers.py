"""Cost of one layer's forward pass: FLOP, the least bytes moved, parameters, and what
it keeps for the backward.

Conventions. A multiply-add is 2 FLOP; a bias is part of the sum and counts nothing.
Bytes are the least possible: each tensor that the layer reads or writes crosses memory
once. `saved_elements` are what autograd keeps: the input of a matrix product,
convolution, pooling or norm (a ReLU's output is the next layer's input: counted there).

Backward = 2 x forward in FLOP: each matrix product of the forward pass has two of the
same size in the backward one, for the gradients of its input and of its weight (Kaplan
et al. 2020, Scaling laws for neural language models, section 2.1). That bytes follow
the same factor is an assumption. Fused attention computes its scores again in the
backward pass; that is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from trainplan.arguments import Count, Size, checked

BACKWARD_OVER_FORWARD = 2  # FLOP


@dataclass(frozen=True)
class Cost:
    """Cost of a forward pass. Add the costs of layers; multiply by an integer for
    layers that repeat.

    `matmul_flop` can run on tensor cores, `vector_flop` (activations, norms, pooling,
    softmax) can't. Elements are those of tensors in the network's dtype, of
    `element_bytes` each; fixed bytes are tensors whose size doesn't follow that dtype:
    masks, pooling's indices, losses. Moved is read and written, saved what is kept for
    the backward pass.
    """

    matmul_flop: int = 0
    vector_flop: int = 0
    moved_elements: int = 0
    moved_fixed_bytes: int = 0
    params: int = 0
    saved_elements: int = 0
    saved_fixed_bytes: int = 0
    element_bytes: int = 4

    @property
    def flop(self) -> int:
        """FLOP of both kinds."""
        return self.matmul_flop + self.vector_flop

    @property
    def n_bytes(self) -> int:
        """Bytes moved: read and written."""
        return self.moved_elements * self.element_bytes + self.moved_fixed_bytes

    def __add__(self, other: Cost) -> Cost:
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in _COUNTS},
        )

    def __mul__(self, times: int) -> Cost:
        return replace(self, **{name: getattr(self, name) * times for name in _COUNTS})


_COUNTS = tuple(field.name for field in fields(Cost) if field.name != "element_bytes")


@checked
def matmul(m: Size, k: Size, n: Size) -> Cost:
    """(m, k) @ (k, n): 2mkn FLOP; both inputs kept. Source: definition
    of the product.
    """
    inputs = m * k + k * n
    return Cost(
        matmul_flop=2 * m * k * n, moved_elements=inputs + m * n, saved_elements=inputs
    )


@checked
def linear(rows: Size, inputs: Size, outputs: Size, *, bias: bool = True) -> Cost:
    """(rows, inputs) through a weight (outputs, inputs): 2 x rows x inputs x outputs
    FLOP; the input is kept.
    """
    params = outputs * (inputs + 1 if bias else inputs)
    return Cost(
        matmul_flop=2 * rows * inputs * outputs,
        moved_elements=rows * (inputs + outputs) + params,
        params=params,
        saved_elements=rows * inputs,
    )


@checked
def window(size: Size, *, kernel: Count, stride: Count = 1, padding: Size = 0) -> int:
    """Positions of a kernel that slides along `size` elements with `padding` on each
    side.

    Raises ValueError for a kernel larger than the padded image, a kernel or stride
    below 1, and negative padding. Source: Dumoulin and Visin 2016, A guide to
    convolution arithmetic.
    """
    padded = size + 2 * padding
    # without this, a kernel that sticks out gives a negative count, which squared looks
    # like a size
    if kernel > padded:
        raise ValueError(
            f"Expected a kernel within the padded image, got kernel {kernel} on an"
            f" image of {size} with padding {padding}, {padded} in all."
            " Take a smaller kernel, a larger image or more padding."
        )
    return (padded - kernel) // stride + 1


@checked
def conv2d(
    batch: Size,
    channels: Size,
    outputs: Size,
    size: Size,
    *,
    kernel: Count,
    stride: Count = 1,
    padding: Size = 0,
    bias: bool = True,
) -> Cost:
    """(batch, channels, size, size) to `outputs` channels: 2 x outputs' elements x
    channels x kernel² FLOP.

    The direct algorithm's count; FFT and Winograd need fewer. Raises ValueError like
    `window`. Source: Dumoulin and Visin (2016).
    """
    written_size = window(size, kernel=kernel, stride=stride, padding=padding)
    written = batch * outputs * written_size**2
    weights = outputs * channels * kernel**2
    params = weights + outputs if bias else weights
    read = batch * channels * size**2
    return Cost(
        matmul_flop=2 * written * channels * kernel**2,
        moved_elements=read + params + written,
        params=params,
        saved_elements=read,
    )


@checked
def pool(batch: Size, channels: Size, size: Size, *, kernel: Count) -> Cost:
    """Max pooling of (batch, channels, size, size) with stride `kernel`: kernel² - 1
    comparisons an output.

    Keeps the input and one 8-byte index an output, as torch does. Raises ValueError
    like `window`.
    """
    written = batch * channels * window(size, kernel=kernel, stride=kernel) ** 2
    read = batch * channels * size**2
    return Cost(
        vector_flop=written * (kernel**2 - 1),
        moved_elements=read + written,
        saved_elements=read,
        saved_fixed_bytes=8 * written,
    )


@checked
def elementwise(
    elements: Size, *, flop_per_element: Size = 1, inputs: Size = 1, saved: Size = 0
) -> Cost:
    """`inputs` tensors of `elements` in, one out; `saved` says how many such tensors
    are kept (ReLU: 0, see above).
    """
    return Cost(
        vector_flop=elements * flop_per_element,
        moved_elements=elements * (inputs + 1),
        saved_elements=elements * saved,
    )


@checked
def layer_norm(rows: Size, width: Size, *, bias: bool = True) -> Cost:
    """(rows, width) normalized along width, 7 FLOP an element: mean, center, square,
    sum, scale, weight, bias.

    Without `bias` it is RMSNorm, counted alike. Keeps the input; the 2 statistics a row
    are left out (< 1 %). Source: Ba, Kiros and Hinton (2016), Layer normalization;
    Zhang and Sennrich (2019), Root mean square layer norm.
    """
    params = 2 * width if bias else width
    return elementwise(rows * width, flop_per_element=7, saved=1) + Cost(
        moved_elements=params, params=params
    )


@checked
def embedding(rows: Size, vocabulary: Size, width: Size) -> Cost:
    """`rows` 8-byte indices look up rows of a (vocabulary, width) table: no FLOP; the
    indices are kept.
    """
    return Cost(
        moved_elements=2 * rows * width,
        moved_fixed_bytes=8 * rows,
        params=vocabulary * width,
        saved_fixed_bytes=8 * rows,
    )


@checked
def attention(
    batch: Size,
    heads: Size,
    seq: Size,
    head_dim: Size,
    *,
    kv_heads: Size = 0,
    window: Size = 0,
    fused: bool = True,
    dropout: bool = False,
) -> Cost:
    """Softmax(Q Kᵀ) V of `seq` queries and keys: 4 x batch x heads x seq² x head_dim
    FLOP, and 5 a score for softmax.

    Counts the full square, also where a causal mask needs half of it (the convention of
    Chowdhery et al. 2022, PaLM, appendix B), or with a `window` so many keys a query
    (0: all). `fused` (Dao et al. 2022, FlashAttention)
    keeps the scores out of memory; else they are written and read twice, and kept:
    once, or with dropout twice and a mask byte each (Korthikanti et al. 2022, section
    4.1). Grouped queries have `kv_heads` key and value heads (0: as many as `heads`).
    """
    query = batch * seq * heads * head_dim
    scores = batch * heads * seq * min(window or seq, seq)
    key_value = 2 * batch * seq * (kv_heads or heads) * head_dim
    in_memory = 0 if fused else scores
    return Cost(
        matmul_flop=4 * scores * head_dim,
        vector_flop=5 * scores,
        moved_elements=2 * query + key_value + 4 * in_memory,
        saved_elements=query + key_value + (2 if dropout else 1) * in_memory,
        saved_fixed_bytes=in_memory if dropout else 0,
    )


@checked
def dropout(elements: Size) -> Cost:
    """Dropout: one multiplication an element, and a mask of one byte an element, kept
    (Srivastava et al. 2014).
    """
    return elementwise(elements) + Cost(
        moved_fixed_bytes=elements, saved_fixed_bytes=elements
    )


@checked
def cross_entropy(rows: Size, classes: Size) -> Cost:
    """Log-softmax and the loss of (rows, classes) logits, 5 FLOP each; keeps float32
    log-probabilities and labels.
    """
    return Cost(
        vector_flop=5 * rows * classes,
        moved_elements=rows * classes,
        moved_fixed_bytes=rows * (classes * 4 + 8),
        saved_fixed_bytes=rows * (classes * 4 + 8),
    )
