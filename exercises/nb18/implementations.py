"""Which FlashAttention scaled_dot_product_attention calls, as far as it can be said."""

from __future__ import annotations

import torch
from torch.nn import attention

NEEDS = {"FA3": "flash-attn-3", "FA4": "flash-attn-4"}


def activated(name: str) -> str:
    """What comes of torch.nn.attention.activate_flash_attention_impl(name): a sentence.
    PyTorch's own kernel is restored afterwards.
    """
    activate = getattr(attention, "activate_flash_attention_impl", None)
    if activate is None:
        return f"PyTorch {torch.__version__} has one FlashAttention, its own."
    known = ", ".join(attention.list_flash_attention_impls())
    begin = f"PyTorch {torch.__version__} knows {known}, besides its own."
    try:
        activate(name)
    except ModuleNotFoundError as error:
        package = NEEDS.get(name, "a package that registers it")
        return f"{begin} {name}: {error}. It comes with {package}."
    except (RuntimeError, ValueError) as error:
        return f"{begin} {name}: {error}"
    now = attention.current_flash_attention_impl()
    restore = getattr(attention, "restore_flash_attention_impl", None)
    if restore is not None:
        restore()
    return f"{begin} {now} was taken for CUDA tensors, until PyTorch's was restored."
