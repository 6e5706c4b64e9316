"""The cluster model compared with published steps: one row a run, predicted beside published, with the errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from labkit.core.arguments import lookup
from labkit.core.display import Shown
from labkit.core.errors import LayoutError
from labkit.core.parameters import Count, Positive, checked
from labkit.core.units import GIGA
from labkit.plan.cluster import published_runs as runs
from labkit.plan.cluster.constants import CONSTANTS, Constants
from labkit.plan.cluster.hardware import Cluster
from labkit.plan.cluster.layout import Layout
from labkit.plan.cluster.published_runs import PublishedStep
from labkit.plan.cluster.step_prediction import Step, step
from labkit.plan.costs.transformers import Transformer
from labkit.plan.published import Agreement, Compared, table

# name: what the rows are, their unit, their source
_TABLES: Mapping[str, tuple[Callable[[], Iterator[PublishedStep]], str, str]] = MappingProxyType(
    {
        "megatron": (runs.megatron, "TFLOP/s a GPU", "Narayanan et al. 2021, table 1"),
        "selective recomputation": (runs.selective, "steps/s", "Korthikanti et al. 2022, table 5"),
        "zero bubble": (runs.zero_bubble, "samples/s a GPU", "Qi et al. 2024, table 4"),
        "llm-foundry": (
            functools.partial(runs.llm_foundry, "llmfoundry_throughput_a100"),
            "tokens/s a GPU",
            "mosaicml/llm-foundry, benchmarking/README.md, A100",
        ),
        "llm-foundry H100": (
            functools.partial(runs.llm_foundry, "llmfoundry_throughput_h100"),
            "tokens/s a GPU",
            "mosaicml/llm-foundry, benchmarking/README.md, H100",
        ),
        "torchtitan": (runs.torchtitan, "tokens/s a GPU", "pytorch/torchtitan, benchmarks and docs/performance.md"),
        "nanotron": (runs.nanotron, "% MFU", "huggingface/nanotron, docs/benchmark_summary.svg"),
        "nemo": (runs.nemo, "tokens/s a GPU", "NVIDIA NeMo, performance summaries 24.07 and 24.12"),
        "megatron bridge": (runs.megatron_bridge, "tokens/s a GPU", "NVIDIA Megatron Bridge, release 25.11"),
    }
)


@functools.cache
def _runs(name: str) -> tuple[PublishedStep, ...]:
    return tuple(_TABLES[name][0]())


def compare(name: str, constants: Constants = CONSTANTS) -> Agreement[Step]:
    """The model with any constants compared with a table of COMPARISONS."""
    _, unit, source = _TABLES[name]
    made = [(run, step(run.model, run.cluster, run.layout, run.batch, constants=constants)) for run in _runs(name)]
    compared = tuple(Compared(run.label, run.said(found), run.published, found) for run, found in made)
    return Agreement(name, unit, compared, source)


def zero_bubble_memory() -> Agreement[Step]:
    """Qi et al. 2024, table 4, 1F1B plain and interleaved: GB (1e9 B) on the fullest GPU."""
    printed = [row for row in table("zero_bubble_throughput_small") if row["schedule"].startswith("1F1B")]
    rows = tuple(
        Compared(row.label, row.by.memory_bytes / GIGA, float(line["memory_gb"]), row.by)
        for row, line in zip(compare("zero bubble").rows, printed, strict=True)
    )
    return Agreement("zero bubble memory", "GB", rows, "Qi et al. 2024, table 4")


COMPARISONS: Mapping[str, Callable[[], Agreement[Step]]] = MappingProxyType(
    {name: functools.partial(compare, name) for name in _TABLES} | {"zero bubble memory": zero_bubble_memory}
)


@checked
def published_steps(name: str) -> Agreement[Step]:
    """The model compared with a published table of a name in COMPARISONS. Raises BadArgument with the nearest name."""
    return lookup(name, COMPARISONS, "published table")()


@dataclass(frozen=True, repr=False)
class HeldAgainst(Shown):
    """A run of the reader's own beside its prediction; speeds in tokens a second and GPU."""

    predicted: Step
    published: float

    @property
    def error(self) -> float:
        """Predicted speed over published, less 1."""
        return runs.tokens_per_gpu(self.predicted) / self.published - 1

    @property
    def expected(self) -> bool:
        """Whether the run is in the prediction's interval."""
        low, high = self.predicted.interval_s
        return low <= self.predicted.seconds * (1 + self.error) <= high

    def __str__(self) -> str:
        where = "within" if self.expected else "outside"
        why = "".join(f"; {reason}" for reason in self.predicted.outside)
        return (
            f"predicted {runs.tokens_per_gpu(self.predicted):,.0f} tokens/s a GPU, published {self.published:,.0f}: "
            f"{self.error:+.1%}, {where} the interval in which eight of ten published steps are{why}"
        )


@checked(error=LayoutError)
def held_against(
    model: Transformer, cluster: Cluster, layout: Layout, batch: Count, tokens_per_s_per_gpu: Positive
) -> HeldAgainst:
    """How far off the planner is on a run of `batch` sequences that reached a speed, in tokens a second and GPU."""
    return HeldAgainst(step(model, cluster, layout, batch), float(tokens_per_s_per_gpu))
