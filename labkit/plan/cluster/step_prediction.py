"""One training step on a cluster: its time and memory by part, utilisation, price and energy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from labkit.core.arguments import check_number
from labkit.core.display import Shown, Table
from labkit.core.errors import LayoutError
from labkit.core.units import format_bytes, format_seconds, format_si
from labkit.measure.catalog import peak
from labkit.plan.cluster.hardware import Cluster
from labkit.plan.cluster.layout import Layout, check_layout
from labkit.plan.cluster.networks import network_memory, network_parts
from labkit.plan.cluster.rank_memory import memory
from labkit.plan.cluster.rates import CONSTANTS, Constants
from labkit.plan.cluster.step_parts import parts
from labkit.plan.cluster.transformer import Transformer
from labkit.plan.costs.memory_of_training import precision
from labkit.plan.costs.money import energy_j, run_cost_usd
from labkit.plan.costs.networks import Network

_CONVENTIONS = ("6 N + 12 L h s", "Narayanan et al. 2021")


@dataclass(frozen=True, repr=False)
class Step(Shown):
    """A calculated step of `batch` sequences: `parts` in seconds, `memory` in bytes on the fullest GPU."""

    model: Transformer | Network
    cluster: Cluster
    layout: Layout
    batch: int
    parts: Mapping[str, float]
    memory: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Time of the step."""
        return sum(self.parts.values())

    @property
    def memory_bytes(self) -> float:
        """Bytes on the fullest GPU."""
        return sum(self.memory.values())

    @property
    def capacity_bytes(self) -> float:
        """The GPU's memory as its maker prints it."""
        return self.cluster.gpu.memory_bytes or 0.0

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU's bytes are within its memory."""
        return self.memory_bytes <= self.capacity_bytes

    @property
    def tokens(self) -> int:
        """Tokens of the step; images count as one each."""
        return self.batch * (self.model.seq or 1)

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second, of the whole cluster."""
        return self.tokens / self.seconds

    @property
    def samples_per_s(self) -> float:
        """Sequences a second, of the whole cluster."""
        return self.batch / self.seconds

    @property
    def model_flop_per_s(self) -> float:
        """FLOP/s a GPU by 6 N + 12 L h s a token (Chowdhery et al. 2022, PaLM): nothing recomputed counts.

        For a Network of layers its own count (Network.training_flop).
        """
        if isinstance(self.model, Network):
            flop = self.batch * self.model.training_flop(self.model.batch(1))
        else:
            flop = self.tokens * self.model.flop_per_token
        return flop / self.seconds / self.cluster.gpus

    @property
    def hardware_flop_per_s(self) -> float:
        """FLOP/s a GPU by Narayanan et al. 2021, equation 3, with the blocks' second forward where all is recomputed.

        This is what table 1 there prints. Selective recomputation counts as none: it repeats less than 2 %.
        """
        if isinstance(self.model, Network):
            return self.model_flop_per_s
        flop = self.model.narayanan_flop(self.batch, recompute=self.layout.recompute == "full")
        return flop / self.seconds / self.cluster.gpus

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation, 0 to 1: model_flop_per_s over the vendor's dense peak."""
        return self.model_flop_per_s / self._peak

    @property
    def hfu(self) -> float:
        """Hardware FLOP utilisation, 0 to 1: hardware_flop_per_s over the vendor's dense peak."""
        return self.hardware_flop_per_s / self._peak

    @property
    def _peak(self) -> float:
        found = peak(self.cluster.gpu, precision(self.layout.dtype).compute_dtype)
        assert found is not None  # the step's time needed it
        return found

    def train_s(self, tokens: float) -> float:
        """Seconds that a run of `tokens` takes, without failures."""
        check_number("tokens", tokens, above=0)
        return tokens / self.tokens_per_s

    def usd(self, tokens: float, usd_per_hour: float) -> float:
        """Rent in US$ of a run of `tokens` at a price a GPU and hour."""
        return run_cost_usd(self.train_s(tokens), usd_per_hour=usd_per_hour, devices=self.cluster.gpus)

    def energy_j(self, tokens: float) -> float:
        """Joules of a run of `tokens` with every GPU at its printed board power; the rest of the nodes comes on top.

        Raises LayoutError where no source says the power.
        """
        power = self.cluster.gpu.tdp_w
        if power is None:
            raise LayoutError(f"Expected a device with a known power, got {self.cluster.gpu.name}.")
        return energy_j(power * self.cluster.gpus, self.train_s(tokens))

    def table(self) -> Table:
        """Time and memory by part."""
        rows = [(part, format_seconds(s), f"{s / self.seconds:.1%}") for part, s in self.parts.items()]
        rows += [("step", format_seconds(self.seconds), "100 %")]
        rows += [(purpose, format_bytes(b), f"{b / self.memory_bytes:.1%}") for purpose, b in self.memory.items()]
        rows += [("memory", format_bytes(self.memory_bytes), f"of {format_bytes(self.capacity_bytes)}")]
        rows = [row for row in rows if row[2] != "0.0%"]
        return Table(tuple(rows), ("part", "calculated", "share"), title=str(self.layout), notes=(self._sentence(),))

    def _sentence(self) -> str:
        images = isinstance(self.model, Network) and self.model.seq is None
        rate = format_si(self.tokens_per_s, "images/s" if images else "tokens/s")
        conventions = ("its layers' FLOP", "the same") if isinstance(self.model, Network) else _CONVENTIONS
        return (
            f"{format_seconds(self.seconds)} a step, {rate}, MFU {self.mfu:.1%} ({conventions[0]}), "
            f"HFU {self.hfu:.1%} ({conventions[1]}), "
            f"{format_bytes(self.memory_bytes)} of {format_bytes(self.capacity_bytes)} a GPU"
        )

    def __str__(self) -> str:
        return f"{self.layout}: {self._sentence()}"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def step(
    model: Transformer | Network, cluster: Cluster, layout: Layout, batch: int, *, constants: Constants = CONSTANTS
) -> Step:
    """One step of `batch` sequences (of the whole cluster), calculated, not measured.

    A Network of lab.costs, such as resnet50(), goes in data parallel only. A layout that needs more than the
    GPU's memory is calculated all the same: Step.fits says so, and require_fit raises. Raises LayoutError where
    layout, model, cluster and batch don't divide, with the nearest that would.
    """
    if isinstance(model, Network):
        check_number("batch", batch, least=1, whole=True, error=LayoutError)
        seconds = network_parts(model, cluster, layout, batch, constants)
        held = network_memory(model, layout)
    else:
        check_layout(model, cluster, layout, batch)
        seconds, held = parts(model, cluster, layout, batch, constants), memory(model, layout, batch)
    return Step(model, cluster, layout, batch, MappingProxyType(seconds), MappingProxyType(held))
