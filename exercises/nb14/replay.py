"""Published pipelines, simulated from their published profiles: samples a second,
predicted and measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exercises.nb14.zero_bubble import zero_bubble
from gpufacts import find
from labkit.measure.published import table
from trainplan.cluster import Agreement, Compared
from trainplan.costs import optimizer_traffic_bytes
from trainplan.schedule import interleaved, one_f_one_b, simulate, zb_h1, zb_h2


@dataclass(frozen=True)
class Profile:
    """One pipeline that Qi et al. 2024 profiled, table 6: seconds a stage takes for a
    micro-batch, and a transfer.

    Each rank has `layers_per_rank` transformer layers; the first and the last have one
    less, for the embedding and the head. All ran in 16 bit on A100 80GB SXM, with
    Megatron-LM's unfused attention.
    """

    model: str
    ranks: int
    layers_per_rank: int
    heads: int
    hidden: int
    seq: int
    micro_batch: int
    microbatches: int
    forward_s: float
    input_s: float
    weight_s: float
    transfer_s: float

    @property
    def kept(self) -> float:
        """Share of an activation that W needs: 32 sbh of 34 sbh + 5 as²b (Qi et al.
        2024, table 1).
        """
        return 32 * self.hidden / (34 * self.hidden + 5 * self.heads * self.seq)

    @property
    def optimizer_s(self) -> float:
        """Seconds of Adam on a rank, at the memory's printed bandwidth, with 12 h²
        parameters a layer.
        """
        params = 12 * self.hidden**2 * self.layers_per_rank
        n_bytes = optimizer_traffic_bytes(
            params, dtype="autocast float16", optimizer="adam"
        )
        bandwidth = find("A100 SXM4 80GB").bandwidth_bytes_per_s
        assert bandwidth is not None  # the catalog has it
        return n_bytes / bandwidth

    def schedule(self, name: str) -> list[list[str]]:
        """A schedule by its name in Qi et al. 2024, as they ran it.

        1F1B-I has a layer a chunk; ZB-1p and ZB-2p are found for the profiled times
        within p and 2 p activations.
        """
        p = self.ranks
        m = self.microbatches
        if name == "1F1B-I":
            return interleaved(p, m, self.layers_per_rank)
        if name in ("ZB-1p", "ZB-2p"):
            times = {
                "forward_s": self.forward_s,
                "input_s": self.input_s,
                "weight_s": self.weight_s,
            }
            limit = p if name == "ZB-1p" else 2 * p
            return zero_bubble(
                p,
                m,
                **times,
                transfer_s=self.transfer_s,
                memory_limit=limit,
                kept=self.kept,
            )
        return {"1F1B": one_f_one_b, "ZB-H1": zb_h1, "ZB-H2": zb_h2}[name](p, m)

    def samples_per_gpu_per_s(self, name: str) -> float:
        """Predicted throughput of a schedule, one GPU a rank, from one optimizer's step
        to the next.

        For all schedules a transfer takes time of the rank that sends and of the one
        that receives, as it was profiled (without compute beside it) and as Megatron-LM
        waits for it. A rank's step ends with its own work and then the optimizer.
        Nothing is fitted to a throughput.
        """
        played = simulate(
            self.schedule(name),
            self.forward_s,
            self.input_s + self.weight_s,
            self.weight_s,
            self.transfer_s,
            kept=self.kept,
            blocking=True,
        )
        return (
            self.micro_batch
            * self.microbatches
            / (played.period_s + self.optimizer_s)
            / self.ranks
        )


def profile(row: Mapping[str, str]) -> Profile:
    """The Profile in a row of the published table "zero_bubble_times"."""
    ranks = int(row["pp"])
    return Profile(
        model=row["model"],
        ranks=ranks,
        layers_per_rank=(int(row["layers"]) + 2) // ranks,
        heads=int(row["heads"]),
        hidden=int(row["hidden"]),
        seq=int(row["seq_len"]),
        micro_batch=int(row["micro_batch"]),
        microbatches=int(row["microbatches_m"]),
        forward_s=float(row["t_forward_ms"]) / 1e3,
        input_s=float(row["t_backward_input_ms"]) / 1e3,
        weight_s=float(row["t_backward_weight_ms"]) / 1e3,
        transfer_s=float(row["t_comm_ms"]) / 1e3,
    )


def published_errors() -> Agreement[str]:
    """Every row of the published table "zero_bubble_throughput_small", predicted from
    its profile.
    """
    setting = ("model", "pp", "gpus", "micro_batch", "microbatches_m")
    profiles = {
        tuple(row[name] for name in setting): profile(row)
        for row in table("zero_bubble_times")
    }
    rows = []
    for row in table("zero_bubble_throughput_small"):
        of_setting = profiles[tuple(row[name] for name in setting)]
        schedule = row["schedule"]
        label = f"{row['model']}, {schedule}, {row['microbatches_m']} micro-batches"
        predicted = of_setting.samples_per_gpu_per_s(schedule)
        rows.append(
            Compared(label, predicted, float(row["samples_per_gpu_per_s"]), by=schedule)
        )
    source = "Qi et al. 2024, Zero Bubble Pipeline Parallelism, tables 4 and 6"
    return Agreement("Zero bubble", "samples/s a GPU", tuple(rows), source)
