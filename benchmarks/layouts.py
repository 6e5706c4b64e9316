"""How long a search of layouts takes, and how much slower its choice was than the best
that others found by trying.

usage, in the repository's folder: python -m benchmarks.layouts

A sweep is one model on one cluster with one batch, of which several layouts' throughput
was published; of nanotron only the best of each sweep was, and of NVIDIA's Megatron
Bridge what its releases chose, one after the other. Choices are judged by the published
throughput, in percent less than the sweep's best:

- the planner's among the sweep's own layouts: the one that it prefers of those that fit
  in its memory, and for comparison the one that it times fastest;
- the planner's among all that the library runs (`best_layout`), where the sweep has
  that very layout.

Of the rest nothing was published. There the model's own times stand in: how much slower
it takes the sweep's best to be than its choice. That is no regret: if the model is
right about both, the choice is better.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from labkit.core.display import Table
from labkit.measure.published import table
from trainplan.cluster import (
    MODELS,
    SOFTWARE,
    Cluster,
    Layout,
    Step,
    Transformer,
    best_layout,
    even_batch,
    network,
    preferred,
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
    "llm-foundry": "llm-foundry",
    "llm-foundry H100": "llm-foundry",
    "torchtitan": "torchtitan",
    "nanotron": "nanotron",
    "megatron bridge": "Megatron-Core",
    "megatron bridge 25.09": "Megatron-Core",
    "megatron bridge 2026": "Megatron-Core",
    "machines of 2026": "Megatron-Core",
    "bigscience": "",
}
# releases of one library, which are one sweep
_RELEASES = {
    "megatron bridge 25.09": "megatron bridge",
    "megatron bridge 2026": "megatron bridge",
}
# the tables in which one layout a sweep was published, the best of several
_BESTS = ("nanotron",)
# Omni-Path of 100 Gbit/s, four links for eight GPUs (bigscience-workshop/bigscience,
# train/tr11-176B-ml/README.md)
_OMNI_PATH = network(4 * 12.5e9 / 8)


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
    """The published sweeps."""
    speeds_by_key: dict[tuple[str, Transformer, Cluster, int], dict[Layout, float]] = (
        defaultdict(dict)
    )
    for name in _LIBRARY:
        runs = bigscience() if name == "bigscience" else published_runs(name)
        for model, cluster, batch, layout, speed in runs:
            sweep_name = _RELEASES.get(name, name)
            speeds_by_layout = speeds_by_key[sweep_name, model, cluster, batch]
            # of releases with the same layout the fastest
            speeds_by_layout[layout] = max(speed, speeds_by_layout.get(layout, 0))
    for key, speeds in speeds_by_key.items():
        if len(speeds) == 1 and key[0] not in _BESTS:
            continue
        others = _other_schedules(key, speeds) if key[0] == "zero bubble" else {}
        yield Sweep(*key, speeds, max(*speeds.values(), *others.values(), 0))


def published_runs(
    name: str,
) -> Iterator[tuple[Transformer, Cluster, int, Layout, float]]:
    """Of each step of a published table its inputs and its tokens a second and GPU."""
    for run in published_steps(name).rows:
        planned = run.by
        yield (
            planned.model,
            planned.cluster,
            planned.batch,
            planned.layout,
            run.published,
        )


def bigscience() -> Iterator[tuple[Transformer, Cluster, int, Layout, float]]:
    """The layouts that BigScience tried before it trained BLOOM, on 384 A100."""
    cluster = Cluster("A100 SXM4 80GB", 384, inter=_OMNI_PATH)
    for row in table("bigscience_layouts"):
        shape = Transformer(
            int(row["layers"]),
            int(row["hidden"]),
            int(row["heads"]),
            250_880,
            2048,
            tied=True,
            fused_attention=False,
            dropout=True,
            # the day too: numbers of two days aren't compared
            name=f"{row['date']}, {row['hidden']} x {row['layers']}",
        )
        layout = Layout(
            int(row["dp"]),
            int(row["tp"]),
            int(row["pp"]),
            zero=1,
            micro_batch=int(row["micro_batch"]),
            recompute="full",
            sequence_parallel=False,
            dtype="mixed float16" if row["precision"] == "fp16" else "mixed bfloat16",
            software=SOFTWARE["Megatron-LM 2021"],
        )
        batch = int(row["global_batch_seqs"])
        speed = batch * shape.seq / float(row["iteration_s"]) / cluster.gpus
        yield shape, cluster, batch, layout, speed


def _other_schedules(
    key: tuple[str, Transformer, Cluster, int], speeds: dict[Layout, float]
) -> dict[str, float]:
    """Qi et al.'s other schedules by name: ZB-1p is ZB-H1, which is added to the
    speeds, and ZB-2p, the fastest, none that is known here.
    """
    _, model, _, batch = key
    others = {}
    for row in table("zero_bubble_throughput_small"):
        row_batch = int(row["micro_batch"]) * int(row["microbatches_m"])
        if int(row["hidden"]) == model.hidden and row_batch == batch:
            others[row["schedule"]] = model.seq * float(row["samples_per_gpu_per_s"])
    plain = next(layout for layout in speeds if layout.interleave == 1)
    speeds[dataclasses.replace(plain, schedule="ZB-H1")] = others["ZB-1p"]
    return others


def fastest(steps: Iterable[Step]) -> Step:
    """The step that the planner calculates to take the fewest seconds."""
    return min(steps, key=lambda planned: planned.seconds)


def among_its_own(
    sweep: Sweep, choose: Callable[[Iterable[Step]], Step]
) -> float | None:
    """Percent that the layout which `choose` takes of the sweep's was slower than the
    best; None of one layout.
    """
    if len(sweep.speeds) == 1:
        return None
    planned = [
        step(sweep.model, sweep.cluster, layout, sweep.batch) for layout in sweep.speeds
    ]
    fitting = [each for each in planned if each.fits] or planned
    return 100 * (1 - sweep.speeds[choose(fitting).layout] / sweep.best)


def among_all(sweep: Sweep) -> tuple[Layout, float | None, float]:
    """The choice of all; the same percent where the sweep has it, else None; and the
    model's percent.
    """
    first = next(iter(sweep.speeds))
    software = dataclasses.replace(first.software, library=_LIBRARY[sweep.name])
    best = best_layout(
        sweep.model,
        sweep.cluster,
        sweep.batch,
        dtype=first.dtype,
        software=software,
        runners_up=0,
    )
    own = tuple(getattr(best.layout, field) for field in _JUDGED)
    same = next(
        (
            speed
            for layout, speed in sweep.speeds.items()
            if tuple(getattr(layout, field) for field in _JUDGED) == own
        ),
        None,
    )
    fastest_published = max(sweep.speeds, key=lambda layout: sweep.speeds[layout])
    theirs = step(sweep.model, sweep.cluster, fastest_published, sweep.batch)
    by_model = 100 * (1 - best.step.seconds / theirs.seconds)
    return (
        best.layout,
        None if same is None else 100 * (1 - same / sweep.best),
        by_model,
    )


class Judged(NamedTuple):
    """A sweep, the percent of the choices among its own layouts (the preferred one, and
    the one timed fastest), and what `among_all` says.
    """

    sweep: Sweep
    preferred: float | None
    fastest: float | None
    choice: Layout
    published: float | None
    by_model: float


def regrets() -> Iterator[Judged]:
    """Each sweep, judged."""
    for sweep in sweeps():
        yield Judged(
            sweep,
            among_its_own(sweep, preferred),
            among_its_own(sweep, fastest),
            *among_all(sweep),
        )


def searches() -> Iterator[tuple[str, float]]:
    """Processor's seconds of a search of a trillion parameters on 4,096 GPUs, the
    longest of three, by what it has.
    """
    # of two thirds as wide MLPs, gated, as torchtitan has them
    gpt = MODELS["GPT 1T"]
    dense = dataclasses.replace(gpt, feed_forward=8 * gpt.hidden // 3, gated=True)
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
    judged = list(regrets())
    of_own = [each.preferred for each in judged if each.preferred is not None]
    of_all = [each.published for each in judged if each.published is not None]
    for name, some in (
        ("of its own layouts", of_own),
        ("of all, where published", of_all),
    ):
        missed = sum(regret > NEAR for regret in some)
        yield (
            f"sweeps of {len(some)} whose best the choice {name} misses by {NEAR:g} %",
            40,
            100 * missed / len(some),
            "%",
        )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


def _sentence(name: str, some: list[float | None]) -> str:
    """How many choices of how many were near the best, and by how much they weren't."""
    regret = sorted(each for each in some if each is not None)
    near = sum(each <= NEAR for each in regret)
    return (
        f"{name}: {near} of {len(regret)} within {NEAR:g} % of the best, median"
        f" {statistics.median(regret):.1f} %, worst {regret[-1]:.1f} %"
    )


def main() -> None:
    """Print each sweep's choices, and the searches' seconds."""
    judged = list(regrets())
    cells = [
        (
            f"{each.sweep.name}, {each.sweep.model.name or each.sweep.model.params}",
            f"{each.sweep.cluster.gpus}",
            f"{each.sweep.batch}",
            str(len(each.sweep.speeds)),
            _percent(each.preferred),
            _percent(each.fastest),
            each.choice.short,
            _percent(each.published),
            _percent(each.by_model),
        )
        for each in judged
    ]
    heads = (
        "sweep",
        "GPUs",
        "batch",
        "layouts",
        "preferred",
        "fastest",
        "choice of all",
        "published",
        "by the model",
    )
    title = "Slower than the sweep's best: the choices of its own layouts, and of all"
    notes = (
        _sentence("Preferred", [each.preferred for each in judged]),
        _sentence("Timed fastest", [each.fastest for each in judged]),
        _sentence("Of all", [each.published for each in judged]),
    )
    print(Table(tuple(cells), heads, title, notes))
    print(
        Table(
            tuple((name, f"{seconds:.2f} s") for name, seconds in searches()),
            ("search", "processor's time"),
        )
    )


if __name__ == "__main__":
    main()
