"""The network that writes in notebook 19, and the bytes of cache that others need."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from exercises.nb19.engine import BLOCK, PagedCache, read_on
from labkit.core import live_line
from labkit.core.display import Table
from labkit.measure.bench import Comparison, compare
from labkit.measure.machine import machine, pick, threads
from labkit.train.models import SmallGPT
from trainplan.cluster import model as model_of

CONTEXT = 128
# how attention keeps keys and values in each
MODELS = ("GPT-3 175B", "Llama-2-7B", "Llama-2-70B", "Llama-3.1-8B", "DeepSeek-V3")


def trained_writer(text: Tensor, rows: int) -> SmallGPT:
    """A small GPT that has read some of a text (N,) of `rows` tokens, always the same
    windows. It says how far it is; after Ctrl-C it has read less.
    """
    torch.manual_seed(0)
    writer = SmallGPT(
        rows,
        layers=pick(ci=1, cpu=2, gpu=12),
        heads=pick(ci=2, cpu=4, gpu=12),
        width=pick(ci=32, cpu=128, gpu=768),
        context=CONTEXT,
    ).to(machine().device)
    steps = pick(ci=10, cpu=500, gpu=1_000)
    optimizer = torch.optim.AdamW(
        writer.parameters(), lr=pick(ci=3e-3, cpu=3e-3, gpu=3e-4)
    )

    def share(step: int) -> float:
        return min(1.0, (step + 1) / 50) * max(0.05, 1 - step / steps)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    windows = text.unfold(0, CONTEXT + 1, 1)  # (N - CONTEXT, CONTEXT + 1)
    try:
        for step in range(steps):
            if step % 50 == 0:
                live_line.tell(f"The writer's step {step} of {steps}.")
            batch = windows[torch.randint(len(windows), (4,))].to(machine().device)
            with threads(1):
                logits = writer(batch[:, :-1])  # (4, CONTEXT, rows)
                loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            schedule.step()
        live_line.tell(f"The writer has read {steps} batches.")
    except KeyboardInterrupt:
        live_line.tell(f"Stopped at step {step} of {steps}: it writes worse.")
    live_line.end()
    return writer.eval()


def calls(model: SmallGPT, text: Tensor) -> dict[str, Callable[[], Tensor]]:
    """A call that reads all tokens at once, and one that reads the last on top of the
    others, as a model does that writes.
    """
    tokens = text.tolist()
    cache = PagedCache(model, -(-len(tokens) // BLOCK))
    pages = [list(range(len(tokens)))]
    last = len(tokens) - 1
    return {
        "write one": lambda: read_on(model, cache, [tokens[-1:]], [last], pages),
        "read all": lambda: read_on(model, cache, [tokens], [0], pages),
    }


def race(model: SmallGPT, text: Tensor) -> Comparison:
    """Time both calls: reading a text (N,) at once, and writing one token."""
    with threads(1):
        return compare(
            calls(model, text),
            sync=machine().sync,
            budget_s=pick(ci=0.1, cpu=2, gpu=2),
            min_runs=5,
        )


def cache_bytes() -> Table:
    """KiB of cache a token of published models, in 16 bit, calculated: as their
    attention keeps it, and with a key and a value for each head.

    Multi-head attention keeps 2 heads * head_dim numbers a layer, grouped-query
    attention 2 kv_heads * head_dim (Ainslie et al. 2023, arXiv 2305.13245), latent
    attention kv_rank and the rotary key (DeepSeek-AI 2024, DeepSeek-V2, arXiv
    2405.04434, section 2.1). The sizes are trainplan's, which names their sources.
    """
    rows = []
    for name in MODELS:
        shape = model_of(name)
        if shape.kv_rank:
            kind = "MLA"
            kept = shape.kv_rank + shape.rotary
            # keys have a part with positions and one without
            per_head = (shape.head_dim or 0) + shape.rotary + shape.value_dim
            whole = shape.heads * per_head
        else:
            size = shape.head_dim or shape.hidden // shape.heads
            kind = "GQA" if shape.key_value_heads < shape.heads else "MHA"
            kept = 2 * shape.key_value_heads * size
            whole = 2 * shape.heads * size
        kib = 2 * shape.layers * kept / 1024
        kib_whole = 2 * shape.layers * whole / 1024
        fitting = int(40 * 2**20 / (kib * 8192))
        sizes = (f"{kib:,.0f}", f"{kib_whole:,.0f}", f"{fitting:,}")
        rows.append((name, kind, *sizes))
    headings = (
        "model",
        "attention",
        "KiB a token",
        "with all heads' keys and values",
        "texts of 8,192 tokens in 40 GiB",
    )
    return Table(tuple(rows), headings, notes=("Calculated, for 16 bits a number.",))
