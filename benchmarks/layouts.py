"""How long a search of layouts takes, and how much slower its choice was than the best
that others found by trying.

usage, in the repository's folder: python -m benchmarks.layouts

A sweep is one model on one cluster with one batch, of which several layouts' throughput
was published; of nanotron only the best of each sweep was. Two choices are judged by
the published throughput, in percent less than the sweep's best:

- the planner's among the sweep's own layouts: the one that it times fastest of those
  that fit in its memory;
- the planner's among all that the library runs (`best_layout`), where the sweep has
  that very layout.

Of the rest nothing was published. There the model's own times stand in: how much slower
it takes the sweep's best to be than its choice. That is no regret: if the model is
right about both, the choice is better.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from labkit.core.display import Table
from labkit.measure.published import table
from trainplan.cluster import (
    MODELS,
    SOFTWARE,
    Cluster,
    Layout,
    Transformer,
    best_layout,
    even_batch,
    published_steps,
    step,
)

NEAR = 5.0  # percent of the best that a choice may be slower
_JUDGED = (
    "data",
    "tensor",
    "pipeline",
    "interleave",
    "zero",
    "micro_batch",
    "recompute",
    "context",
    "expert",
    "schedule",
)
# Whose rules and habits the search keeps to. Qi et al.'s schedules are of a program of
# their own.
_LIBRARY = {
    "selective recomputation": "Megatron-Core",
    "zero bubble": "",
    "nanotron": "nanotron",
}


class Sweep(NamedTuple):
    """Published tokens a second and GPU by layout; `best` is the sweep's, of layouts
    that can't be said here too.
    """

    name: str
    model: Transformer
    cluster: Cluster
    batch: int
    speeds: dict[Layout, float]
    best: float


def sweeps() -> Iterator[Sweep]:
    """The published sweeps. Of Qi et al.'s schedules ZB-1p is ZB-H1, and ZB-2p, the
    fastest, none known here.
    """
    speeds_by_key: dict[tuple[str, Transformer, Cluster, int], dict[Layout, float]] = (
        defaultdict(dict)
    )
    for name in _LIBRARY:
        for run in published_steps(name).rows:
            key = (name, run.by.model, run.by.cluster, run.by.batch)
            speeds_by_key[key][run.by.layout] = run.published
    for key, speeds in speeds_by_key.items():
        name, model, _, batch = key
        others = {}
        if name == "zero bubble":
            plain = next(layout for layout in speeds if layout.interleave == 1)
            for row in table("zero_bubble_throughput_small"):
                if (
                    int(row["hidden"]) == model.hidden
                    and int(row["micro_batch"]) * int(row["microbatches_m"]) == batch
                ):
                    others[row["schedule"]] = model.seq * float(
                        row["samples_per_gpu_per_s"]
                    )
            speeds[dataclasses.replace(plain, schedule="ZB-H1")] = others["ZB-1p"]
        yield Sweep(
            *key,
            speeds,
            max(*speeds.values(), *others.values()) if others else max(speeds.values()),
        )


def among_its_own(sweep: Sweep) -> float | None:
    """Percent that the layout of the sweep which the planner prefers was slower than
    the best; None of one layout.
    """
    if len(sweep.speeds) == 1:
        return None
    made = [
        step(sweep.model, sweep.cluster, layout, sweep.batch) for layout in sweep.speeds
    ]
    fits = [estimate for estimate in made if estimate.fits] or made
    choice = min(fits, key=lambda estimate: estimate.seconds).layout
    return 100 * (1 - sweep.speeds[choice] / sweep.best)


def among_all(sweep: Sweep) -> tuple[Layout, float | None, float]:
    """The choice of all; the same percent where the sweep has it, else None; and the
    model's percent.
    """
    first = next(iter(sweep.speeds))
    library = _LIBRARY[sweep.name]
    software = (
        SOFTWARE["nanotron"]
        if library == "nanotron"
        else dataclasses.replace(first.software, library=library)
    )
    best = best_layout(
        sweep.model,
        sweep.cluster,
        sweep.batch,
        dtype=first.dtype,
        software=software,
        runners_up=0,
    )
    fields = {
        layout: tuple(getattr(layout, field) for field in _JUDGED)
        for layout in sweep.speeds
    }
    own = tuple(getattr(best.layout, field) for field in _JUDGED)
    same = next(
        (sweep.speeds[layout] for layout, judged in fields.items() if judged == own),
        None,
    )
    fastest = max(sweep.speeds, key=lambda layout: sweep.speeds[layout])
    theirs = step(
        sweep.model,
        sweep.cluster,
        dataclasses.replace(fastest, software=software),
        sweep.batch,
    )
    by_model = 100 * (1 - best.step.seconds / theirs.seconds)
    return (
        best.layout,
        None if same is None else 100 * (1 - same / sweep.best),
        by_model,
    )


def regrets() -> Iterator[tuple[Sweep, float | None, Layout, float | None, float]]:
    """Of each sweep what `among_its_own` and `among_all` say."""
    for sweep in sweeps():
        yield sweep, among_its_own(sweep), *among_all(sweep)


def searches() -> Iterator[tuple[str, float]]:
    """Processor's seconds of a search of a trillion parameters on 4,096 GPUs, the
    longest of three, by what it has.
    """
    dense = MODELS["GPT 1T"]
    cluster = Cluster("H100 SXM5 80GB", 4096)
    sparse = Transformer(
        64,
        8192,
        64,
        feed_forward=4096,
        kv_heads=8,
        experts=160,
        top_k=8,
        gated=True,
        name="1T with experts",
    )
    long, both = (dataclasses.replace(shape, seq=131_072) for shape in (dense, sparse))
    for library in ("torchtitan", "Megatron-Core", "torch"):
        for what, model in (
            ("dense", dense),
            ("128k tokens", long),
            ("experts", sparse),
            ("both", both),
        ):
            took = []
            batch = even_batch(model, cluster, 2**25 // model.seq)[1]
            for _ in range(3):
                start = time.process_time()
                best_layout(model, cluster, batch, software=SOFTWARE[library])
                took.append(time.process_time() - start)
            yield f"{what}, {library}", max(took)


def figures() -> Iterator[tuple[str, float, float, str]]:
    """Name, target, value and unit of each figure, of which less is better."""
    for name, seconds in searches():
        yield f"best layout of 1T parameters on 4,096 GPUs, {name}", 2, seconds, "s"
    per_sweep = list(regrets())
    among_own = [own for _, own, *_ in per_sweep if own is not None]
    among_published = [free for *_, free, _ in per_sweep if free is not None]
    for name, some in (
        ("of its own layouts", among_own),
        ("of all, where published", among_published),
    ):
        missed = sum(regret > NEAR for regret in some)
        yield (
            f"sweeps of {len(some)} whose best the choice {name} misses by {NEAR:g} %",
            40,
            100 * missed / len(some),
            "%",
        )


def main() -> None:
    """Print each sweep's choices, and the searches' seconds."""

    def percent(value: float | None) -> str:
        return "" if value is None else f"{value:.1f} %"

    cells = [
        (
            sweep.name,
            sweep.model.name or f"{sweep.model.params / 1e9:.2f}B",
            f"{sweep.cluster.gpus}",
            f"{sweep.batch}",
            str(len(sweep.speeds)),
            percent(own),
            choice.short,
            percent(free),
            percent(by_model),
        )
        for sweep, own, choice, free, by_model in regrets()
    ]
    heads = (
        "sweep",
        "model",
        "GPUs",
        "batch",
        "layouts",
        "own",
        "choice of all",
        "published",
        "by the model",
    )
    print(
        Table(
            tuple(cells),
            heads,
            "Slower than the sweep's best: the choice of its own layouts, and of all",
        )
    )
    print(
        Table(
            tuple((name, f"{seconds:.2f} s") for name, seconds in searches()),
            ("search", "processor's time"),
        )
    )


if __name__ == "__main__":
    main()
