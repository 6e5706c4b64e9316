"""The cluster planner's errors on published training runs, beside those of two other
planners on the same runs.

usage, in the repository's folder: python -m benchmarks.planner

- mlsysim (https://mlsysbook.ai/mlsysim, `pip install mlsysim==0.3.0`; left out if it
  isn't installed) predicts the dense runs without context ranks. Its user chooses the
  share of a GPU's peak that compute reaches. Here each table has, of SHARES, the one
  with the least median error on that very table, which favors mlsysim. This program
  also prints the errors with mlsysim's default share.
- Calculon (Isaev et al. 2023) predicts the runs of Korthikanti et al. (2022); its own
  program did so, and trainplan_published/calculon_predictions.csv has what it said.

The planner's constants are fitted to these runs, to all tables at once, so its errors
on other runs are larger: trainplan_published/fit_cluster.py prints those on tables that
the constants weren't fitted to. An error is predicted over published speed, less 1.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
from collections.abc import Iterator, Sequence

from labkit.core.display import Table
from labkit.measure.published import table
from trainplan.cluster import COMPARISONS, Compared, Step, published_steps

# mlsysim's names of devices. Its GB200 is a whole rack, a 72nd of which has its B200's
# peaks.
DEVICES = {
    "A100 SXM4 80GB": "A100",
    "A100 SXM4 40GB": "A100_40GB",
    "H100 SXM5 80GB": "H100",
    "H200 SXM": "H200",
    "B200 SXM": "B200",
    "GB200 (per Blackwell GPU)": "B200",
}
DEFAULT_SHARE = (0.5,)  # mlsysim's own, of the peak
# of the peak, tried for each table
SHARES = tuple(percent / 100 for percent in range(30, 71))
# by table, each run's: the planner's and the other's
Errors = dict[str, list[tuple[float, float]]]


def rows() -> Iterator[tuple[str, float | None, float, str]]:
    """Name, target (the other's error), value (the planner's) and unit of each figure.

    The median of a single table has no target: constants fitted to all tables at once
    give some of each table up, and eight runs can't tell that from chance.
    """
    for other, errors in _others():
        for name, runs, ours, theirs in summary(errors):
            for which, own, target in zip(
                ("median", "90th percentile"), ours, theirs, strict=True
            ):
                figure = f"planner's error, {which} of {runs} runs, {name}"
                words = f"{figure}, against {other}'s {target:.3g} %"
                is_judged = name == "all tables" or which != "median"
                yield words, target if is_judged else None, own, "%"


def summary(
    found: Errors,
) -> Iterator[tuple[str, int, tuple[float, float], tuple[float, float]]]:
    """Of each table, and of all: its name, its runs, and the median and 90th percentile
    in percent, ours and theirs.
    """
    if len(found) > 1:
        found = found | {
            "all tables": [pair for pairs in found.values() for pair in pairs]
        }
    for name, pairs in found.items():
        ours, theirs = zip(*pairs, strict=True)
        yield name, len(pairs), _median_and_p90(ours), _median_and_p90(theirs)


def _median_and_p90(errors: Sequence[float]) -> tuple[float, float]:
    sizes = sorted(100 * abs(error) for error in errors)
    return statistics.median(sizes), sizes[math.ceil(0.9 * len(sizes)) - 1]


def _others() -> Iterator[tuple[str, Errors]]:
    yield "Calculon", calculon()
    if _has_mlsysim():
        yield "mlsysim", mlsysim()
    else:
        print(
            "mlsysim is not installed, so it is left out: pip install mlsysim==0.3.0",
            file=sys.stderr,
        )


def _has_mlsysim() -> bool:
    return importlib.util.find_spec("mlsysim") is not None


def calculon() -> Errors:
    """Errors on the runs of the table "selective recomputation"."""
    name = "selective recomputation"
    published = {
        f"{row['model']}, recompute {row['recompute']}": row
        for row in table("calculon_predictions")
    }
    runs = published_steps(name).rows
    return {
        name: [
            (run.error, _error(run, float(published[run.label]["iteration_s"])))
            for run in runs
        ]
    }


def _error(run: Compared[Step], seconds: float) -> float:
    """The error of another's prediction of a run, a step of `seconds`: published
    seconds over them, less 1.
    """
    return run.by.seconds * (1 + run.error) / seconds - 1


def mlsysim(shares: Sequence[float] = SHARES) -> Errors:
    """Errors on the runs that mlsysim can express, each table with the best of `shares`
    of the peak.
    """
    by_comparison = {}
    for name in COMPARISONS:
        agreement = published_steps(name)
        runs = [run for run in agreement.rows if expressible(run.by)]
        if runs and agreement.unit != "GB":  # speeds, not memory
            tried = [
                [_error(run, mlsysim_seconds(run.by, share)) for run in runs]
                for share in shares
            ]
            best = min(tried, key=lambda errors: _median_and_p90(errors)[0])
            by_comparison[name] = [
                (run.error, error) for run, error in zip(runs, best, strict=True)
            ]
    return by_comparison


def expressible(made: Step) -> bool:
    """Whether mlsysim has a step's device, and the ways in which it is split."""
    return (
        made.cluster.gpu.name in DEVICES
        and not made.model.experts
        and made.layout.context == 1
    )


def mlsysim_seconds(made: Step, share: float) -> float:
    """Seconds that mlsysim's DistributedModel predicts for the same step, if compute
    reaches a share of the peak.

    It is given the planner's FLOP of a token, with attention's, and the rates that
    links reach, not the printed ones. Its own count, twice the parameters, has larger
    errors.
    """
    import mlsysim as peer  # optional
    from mlsysim.models.types import TransformerWorkload
    from mlsysim.systems.types import Fleet, NetworkFabric, Node

    model = made.model
    layout = made.layout
    cluster = made.cluster
    unit = peer.ureg
    workload = TransformerWorkload(
        name="model",
        architecture="Transformer",
        parameters=model.params * unit.count,
        layers=model.layers,
        hidden_dim=model.hidden,
        heads=model.heads,
        kv_heads=model.key_value_heads,
        inference_flops=model.flop_per_token / 3 * unit.flop,
    )
    node = Node(
        name="node",
        accelerator=getattr(peer.Hardware.Cloud, DEVICES[cluster.gpu.name]),
        accelerators_per_node=min(cluster.gpus_per_node, cluster.gpus),
        intra_node_bw=cluster.inside.bytes_per_s * unit.byte / unit.second,
    )
    between = NetworkFabric(
        name="network",
        bandwidth=cluster.between.bytes_per_s * unit.byte / unit.second,
        latency=cluster.between.alpha_s * unit.second,
    )
    step = peer.solvers.DistributedModel().solve(
        workload,
        Fleet(name="cluster", node=node, count=cluster.nodes, fabric=between),
        batch_size=made.batch,
        precision="fp8" if "float8" in layout.dtype else "fp16",
        efficiency=share,
        tp_size=layout.tensor,
        pp_size=layout.pipeline,
        v_stages=layout.interleave,
        microbatch_count=layout.microbatches(made.batch),
        zero_stage=layout.zero,
        activation_recomputation=layout.recompute == "full",
        overlap_comm=layout.overlap,
        seq_len=model.seq,
    )
    return float(step.step_latency_total.m_as("second"))


def main() -> None:
    """Print the errors of both on each table."""
    others = dict(_others())
    if _has_mlsysim():
        others["mlsysim, default share"] = mlsysim(DEFAULT_SHARE)
    cells = [
        (
            other,
            name,
            str(runs),
            *(f"{value:.1f} %" for value in (ours[0], theirs[0], ours[1], theirs[1])),
        )
        for other, errors in others.items()
        for name, runs, ours, theirs in summary(errors)
    ]
    heads = (
        "other",
        "table",
        "runs",
        "median, ours",
        "theirs",
        "90th percentile, ours",
        "theirs",
    )
    print(
        Table(
            tuple(cells), heads, "Errors of the planner and of others on published runs"
        )
    )


if __name__ == "__main__":
    main()
