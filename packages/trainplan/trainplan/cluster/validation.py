"""The cluster model compared with published steps: one row a run, predicted beside
published, with the errors.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from trainplan._tables import Shown
from trainplan._text import lookup
from trainplan._units import GIGA
from trainplan.arguments import Count, Positive, checked
from trainplan.cluster import evidence
from trainplan.cluster.agreement import Agreement, Compared
from trainplan.cluster.comparison import Differences, differences, published_run
from trainplan.cluster.constants import CONSTANTS, Constants
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout
from trainplan.cluster.rank_memory import stage_memory
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.step_prediction import Step, step
from trainplan.costs.transformers import Transformer

COMPARISONS = (
    "megatron",
    "selective recomputation",
    "zero bubble",
    "llm-foundry",
    "llm-foundry H100",
    "torchtitan",
    "nanotron",
    "nemo",
    "megatron bridge",
    "megatron bridge 25.09",
    "megatron bridge 2026",
    "zero bubble memory",
    "torchtitan memory",
    "nanotron memory",
)
# TPUs; GB300, DeepSeek-V3, LoRA, and two whole trainings; memory of several sources
NOT_FITTED = ("MaxText", "machines of 2026", "memory of others")


def compare(name: str, constants: Constants = CONSTANTS) -> Agreement[Step]:
    """The model with any constants compared with a table of COMPARISONS: speeds, or GB
    on the fullest GPU or rank 0.
    """
    rows = evidence.rows(name)
    unit = rows[0]["unit"]
    compared = []
    for row, inputs in zip(rows, evidence.inputs(name), strict=True):
        prediction = step(*inputs, constants=constants)
        if unit.startswith("tok"):
            predicted = prediction.tokens_per_s_per_gpu
        elif unit == "GB of the first stage":
            predicted = sum(stage_memory(rank_share(*inputs), 0).values()) / GIGA
        else:
            predicted = prediction.memory_bytes / GIGA
        published = float(row["published"])
        compared.append(Compared(row["label"], predicted, published, prediction))
    return Agreement(name, unit, tuple(compared), rows[0]["source"])


@checked
def published_steps(name: str) -> Agreement[Step]:
    """The model compared with a published table in COMPARISONS, or in NOT_FITTED, to
    which no constant was fitted.

    Raises ValueError with the nearest name.
    """
    tables = {table: table for table in (*COMPARISONS, *NOT_FITTED)}
    return compare(lookup(name, tables, "published table"))


@dataclass(frozen=True, repr=False)
class HeldAgainst(Compared[Step], Shown):
    """A run of the reader's own beside its prediction; speeds in tokens a second and
    GPU.

    `against` is another run beside its own prediction, with which it is compared; None
    stands for the published step that is most like it, on the same generation of
    devices where there is one.
    """

    against: Compared[Step] | None = None

    @property
    def expected(self) -> bool:
        """Whether the run is in the prediction's interval."""
        low, high = self.by.interval_s
        return low <= self.by.seconds * (1 + self.error) <= high

    @functools.cached_property
    def differences(self) -> Differences:
        """What differs between this run and the other, what each difference is worth,
        and what is left unexplained.
        """
        other = self.against
        if other is None:
            mine = self.by
            near = evidence.nearest(
                mine.model, mine.cluster, mine.layout, mine.batch, same_device=True
            )
            other = published_run(near.label)
        return differences(self, other)

    def __str__(self) -> str:
        where = "within" if self.expected else "outside"
        why = "".join(f"; {reason}" for reason in self.by.outside)
        mfu = self.by.causal_mfu * self.published / self.predicted
        if mfu > 1:
            why += (
                f"; it would take {mfu:.0%} of the GPU's peak, which no run can: give"
                " the tokens a second of one GPU, not of all"
            )
        return (
            f"predicted {self.predicted:,.0f} tokens/s a GPU, measured"
            f" {self.published:,.0f}: {self.error:+.1%}, {where} the interval in which"
            f" eight of ten published steps are{why}"
        )


@checked
def held_against(
    model: Transformer,
    cluster: Cluster,
    layout: Layout,
    batch: Count,
    tokens_per_s_per_gpu: Positive,
    *,
    against: Compared[Step] | str | None = None,
) -> HeldAgainst:
    """How far off the planner is on a run of `batch` sequences that reached a speed, in
    tokens a second and GPU, and in what the run differs from another.

    `against` is that other run: another result of held_against, such as what a blog
    wrote of its run; a row of `published_steps`; or a published step by its table and
    label. Without it the published step is taken that is most like this run, on the
    same generation of devices where there is one.
    """
    prediction = step(model, cluster, layout, batch)
    predicted = prediction.tokens_per_s_per_gpu
    measured = float(tokens_per_s_per_gpu)
    if isinstance(against, str):
        against = published_run(against)
    return HeldAgainst(str(layout), predicted, measured, prediction, against)
