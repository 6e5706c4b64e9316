"""Published pipelines, simulated from their published profiles: samples a second, predicted beside measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.core.errors import DataError, ScheduleError, nearest
from labkit.measure.catalog import find
from labkit.plan.costs import optimizer_traffic_bytes
from labkit.plan.published import Agreement, Compared, table
from labkit.plan.schedule.automatic import zero_bubble
from labkit.plan.schedule.orders import Lists, gpipe, interleaved, one_f_one_b, zb_h1, zb_h2
from labkit.plan.schedule.simulation import simulate

SCHEDULES = ("GPipe", "1F1B", "1F1B-I", "ZB-H1", "ZB-H2", "ZB-1p", "ZB-2p")


@dataclass(frozen=True)
class Profile:
    """What Qi et al. 2024 profiled of one pipeline, table 6: seconds of a stage and a micro-batch, and of a transfer.

    Each rank has `layers_per_rank` transformer layers; the first and the last have one less, for the embedding and
    the head. All ran in 16 bit on A100 80GB SXM, with Megatron-LM's unfused attention.
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
        """Share of an activation that W needs: 32 sbh of 34 sbh + 5 as²b (Qi et al. 2024, table 1)."""
        return 32 * self.hidden / (34 * self.hidden + 5 * self.heads * self.seq)

    @property
    def optimizer_s(self) -> float:
        """Seconds of Adam on a rank: its traffic at the memory's printed bandwidth; 12 h² parameters a layer."""
        params = 12 * self.hidden**2 * self.layers_per_rank
        n_bytes = optimizer_traffic_bytes(params, dtype="autocast float16", optimizer="adam")
        bandwidth = find("A100 SXM4 80GB").bandwidth_bytes_per_s
        assert bandwidth is not None  # the catalogue has it
        return n_bytes / bandwidth

    def order(self, schedule: str) -> Lists:
        """The lists of a schedule in SCHEDULES, as its authors ran it.

        1F1B-I has a layer a chunk; ZB-1p and ZB-2p are found for the profiled times within p and 2p activations.
        Raises ScheduleError for another name.
        """
        if schedule not in SCHEDULES:
            near = nearest(str(schedule), SCHEDULES, n=1)[0]
            raise ScheduleError(
                f"Expected a schedule out of {', '.join(SCHEDULES)}; got {schedule!r}. The nearest is {near!r}."
            )
        if schedule == "1F1B-I":
            return interleaved(self.ranks, self.microbatches, self.layers_per_rank)
        if schedule in ("ZB-1p", "ZB-2p"):
            return zero_bubble(
                self.ranks,
                self.microbatches,
                forward_s=self.forward_s,
                input_s=self.input_s,
                weight_s=self.weight_s,
                transfer_s=self.transfer_s,
                memory_limit=self.ranks * int(schedule[3]),
                kept=self.kept,
            )
        plain = {"GPipe": gpipe, "1F1B": one_f_one_b, "ZB-H1": zb_h1, "ZB-H2": zb_h2}
        return plain[schedule](self.ranks, self.microbatches)

    def samples_per_gpu_per_s(self, schedule: str) -> float:
        """Predicted throughput of a schedule in SCHEDULES, one GPU a rank, from one optimizer's step to the next.

        One rule for all: each transfer takes its time from the rank that sends and the one that receives (it was
        profiled so, without compute beside it; Megatron-LM waits for it), a step is over for a rank when it has done
        its own work, and then comes the optimizer. Nothing is fitted to a throughput.
        """
        played = simulate(
            self.order(schedule),
            self.forward_s,
            self.input_s + self.weight_s,
            self.weight_s,
            self.transfer_s,
            kept=self.kept,
            blocking=True,
        )
        return self.micro_batch * self.microbatches / (played.period_s + self.optimizer_s) / self.ranks


def profile(row: Mapping[str, Any]) -> Profile:
    """A Profile of a row with the columns of data/published/zero_bubble_times.csv. DataError for one without them."""
    try:
        ranks, layers = int(row["pp"]), int(row["layers"])
        return Profile(
            model=str(row["model"]),
            ranks=ranks,
            layers_per_rank=(layers + 2) // ranks,
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
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"Expected a row with the columns of data/published/zero_bubble_times.csv, got {error!r}. "
            "Take one of lab.published.table('zero_bubble_times')."
        ) from error


def published_errors() -> Agreement[str]:
    """Every row of data/published/zero_bubble_throughput_small.csv, predicted from its profile."""
    setting = ("model", "pp", "gpus", "micro_batch", "microbatches_m")
    profiles = {tuple(row[name] for name in setting): profile(row) for row in table("zero_bubble_times")}
    rows = []
    for row in table("zero_bubble_throughput_small"):
        found = profiles.get(tuple(row[name] for name in setting))
        if found is None:
            raise DataError(f"No profile of {row['model']} with {row['microbatches_m']} micro-batches was published.")
        schedule = row["schedule"]
        label = f"{row['model']}, {schedule}, {row['microbatches_m']} micro-batches"
        predicted = found.samples_per_gpu_per_s(schedule)
        rows.append(Compared(label, predicted, float(row["samples_per_gpu_per_s"]), by=schedule))
    source = "Qi et al. 2024, Zero Bubble Pipeline Parallelism, tables 4 and 6"
    return Agreement("Zero bubble", "samples/s a GPU", tuple(rows), source)
