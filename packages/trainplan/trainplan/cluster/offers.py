"""GPUs with a layout as an offer for a run: its days, rent and energy, and whether they
keep to what there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from trainplan._tables import Shown, ShownAsTable, Table
from trainplan._units import format_si, significant
from trainplan.arguments import NonNegative, Positive, checked
from trainplan.cluster.runs import Bill, bill
from trainplan.cluster.step_prediction import Step
from trainplan.costs.transformers import Transformer
from trainplan.csv_tables import rows, settings

OPTIMAL_TOKENS = 20  # a parameter: Hoffmann et al. 2022, table 3, about
_YEAR_DAYS = 365
_FEW_STEPS = 100  # of a run, below which a smaller batch is advised
_UNITS = ((2.0, 1.0, "days"), (2 / 24, 1 / 24, "hours"), (0.0, 1 / 1440, "minutes"))
_COUNTS = ((1e12, "trillion "), (1e9, "billion "), (1e6, "million "), (0.0, ""))


@dataclass(frozen=True)
class Rent:
    """What a page asked for a GPU on demand, in US dollars an hour, and the day on
    which that was read; None where it isn't on the page.

    `gpu` is a name of gpufacts, `gpus_per_node` how many make a machine. Whole machines
    are rented: the rent of a GPU is its share.
    """

    gpu: str
    gpus_per_node: int
    usual: bool  # whether which_gpus tries it where no GPU is named
    source: str
    usd_per_gpu_hour: float | None = None
    page: str = ""
    read_on: str = ""


RENTS: Mapping[str, Rent] = MappingProxyType(
    {row["gpu"]: Rent(**settings(row), source=row["source"]) for row in rows("rents")}
)
"""What GPUs rent for, by their names in gpufacts."""


@checked
@dataclass(frozen=True, repr=False)
class Offer(Shown):
    """GPUs with a layout, by a calculated `step`, for a run of `tokens` that may take
    `days` and `dollars` of rent at most; None for what isn't asked.

    `usd_per_gpu_hour` is the rent of a GPU; None where it is unknown. Raises ValueError
    for `days` and `dollars` without `tokens`, and for `dollars` without a rent.
    """

    step: Step
    tokens: Positive | None = None
    days: Positive | None = None
    dollars: Positive | None = None
    usd_per_gpu_hour: NonNegative | None = None

    def __post_init__(self) -> None:
        require_tokens(self.step.model, self.tokens, self.days, self.dollars)
        if self.dollars is not None and self.usd_per_gpu_hour is None:
            raise ValueError(
                "Expected a rent (--rent, usd_per_gpu_hour) beside the dollars: that of"
                f" {self.step.cluster.gpu.name} is unknown. Say what an hour of a GPU"
                " costs."
            )

    @property
    def gpus(self) -> int:
        """How many GPUs these are."""
        return self.step.cluster.gpus

    @property
    def usd_per_hour(self) -> float | None:
        """The rent of all GPUs."""
        if self.usd_per_gpu_hour is None:
            return None
        return self.gpus * self.usd_per_gpu_hour

    @property
    def bill(self) -> Bill | None:
        """Days, rent and energy of the run; None without `tokens`."""
        if self.tokens is None:
            return None
        return bill(self.step, self.tokens, self.usd_per_gpu_hour or 0.0)

    @property
    def bounds(self) -> str:
        """The days and dollars that there are, in words; empty for none."""
        words = []
        if self.days is not None:
            unit = "day" if self.days == 1 else "days"
            words.append(f"in at most {self.days:,.10g} {unit}")
        if self.dollars is not None:
            words.append(f"for at most {self.dollars:,.10g} US$")
        return " and ".join(words)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run takes, whether that is kept to, and where the rent was read."""
        text = f"The run with the first: {self}."
        if self.bounds:
            text += f" {self.bounds[0].upper()}{self.bounds[1:]}: {self.keeps}."
        return (text, *self.long_run, *self.few_steps, *_rent_notes([self]))

    @property
    def long_run(self) -> tuple[str, ...]:
        """A note on a run of more than a year; empty for others."""
        run = self.bill
        if run is None or run.days <= _YEAR_DAYS:
            return ()
        years = significant(run.days / _YEAR_DAYS)
        return (
            f"That is {years} years. For how many GPUs end sooner, ask without --gpus,"
            " such as with --days 90.",
        )

    @property
    def few_steps(self) -> tuple[str, ...]:
        """A note on a run of few steps, which hardly train; empty for others."""
        if self.tokens is None or self.tokens >= _FEW_STEPS * self.step.tokens:
            return ()
        steps = significant(self.tokens / self.step.tokens)
        return (
            f"{tokens_text(self.tokens)} are {steps} steps of {self.step.tokens:,}"
            " tokens: with a smaller batch (--global-batch) there are more.",
        )

    @property
    def excess(self) -> tuple[float, float]:
        """How many times the days or dollars that there are the run takes, of the two
        the worse: as calculated, and at the upper end of the interval. 0 without
        bounds.
        """
        run = self.bill
        calculated = [0.0]
        upper = [0.0]
        if run is not None and self.days is not None:
            calculated.append(run.days / self.days)
            upper.append(run.days_interval[1] / self.days)
        if run is not None and self.dollars is not None:
            calculated.append(run.usd / self.dollars)
            upper.append(run.usd_interval[1] / self.dollars)
        return max(calculated), max(upper)

    @property
    def keeps(self) -> str:
        """Whether the run keeps to the days and dollars: "likely" where the upper end
        of its interval does, "in doubt" where only the calculated value does, or "no";
        empty where nothing is asked.
        """
        if not self.bounds:
            return ""
        calculated, upper = self.excess
        if upper <= 1:
            return "likely"
        return "in doubt" if calculated <= 1 else "no"

    def __str__(self) -> str:
        speed = format_si(self.step.tokens_per_s, "tokens/s")
        text = f"{_machines(self.step)} with {self.step.layout.short}, {speed}"
        run = self.bill
        if run is None:
            if self.usd_per_hour is not None:
                text += f", {significant(self.usd_per_hour)} US$ an hour"
            return text
        unit, time = _time(run, run.days)
        text += f", {time} {unit}"
        if run.usd > 0:
            low, high = map(significant, run.usd_interval)
            text += f", {significant(run.usd)} ({low} to {high}) US$"
        if run.kwh is not None and run.kw is not None:
            energy = format_si(1000 * run.kwh, "Wh")
            text += f", {energy} at {format_si(1000 * run.kw, 'W')}"
        return text


def require_tokens(
    model: Transformer,
    tokens: float | None,
    days: float | None,
    dollars: float | None,
) -> None:
    """Raise ValueError where days or dollars are said without the tokens of the run."""
    if tokens is None and (days is not None or dollars is not None):
        optimal = significant(OPTIMAL_TOKENS * model.params / 1e9)
        raise ValueError(
            "Expected the tokens of the run (--tokens) beside its days or dollars, got"
            f" none. Say how many, such as {optimal}e9: {OPTIMAL_TOKENS} a parameter of"
            f" {model.name} (Hoffmann et al. 2022)."
        )


def _machines(step: Step) -> str:
    return f"{step.cluster.gpus:,} x {step.cluster.gpu.name}"


def _time(run: Bill, days: float) -> tuple[str, str]:
    """A run's time with its interval, in the unit that suits `days`; the unit first."""
    size, unit = next((size, unit) for least, size, unit in _UNITS if days >= least)
    low, high = (significant(end / size) for end in run.days_interval)
    return unit, f"{significant(run.days / size)} ({low} to {high})"


def tokens_text(tokens: float) -> str:
    """A run's tokens in words: 15e12 -> "15.0 trillion tokens"."""
    size, word = next((size, word) for size, word in _COUNTS if tokens >= size)
    return f"{significant(tokens / (size or 1.0))} {word}tokens"


@dataclass(frozen=True, repr=False)
class Offers(ShownAsTable):
    """Of each GPU that was tried the best offer, the best of them first.

    `left_out` has the GPUs without an offer, and why.
    """

    offers: tuple[Offer, ...]
    left_out: Mapping[str, str]

    @property
    def best(self) -> Offer:
        """The first: the nearest one, where none keeps to what was asked."""
        return self.offers[0]

    @property
    def kept(self) -> bool:
        """Whether the best keeps to the days and dollars, as calculated."""
        return self.best.keeps != "no"

    @property
    def notes(self) -> tuple[str, ...]:
        """The best in a sentence, what the words mean, the rents' source, and what was
        left out.
        """
        notes = [f"{self._lead()} {self.best}."]
        if not self.kept:
            notes.append(self._advice())
        elif self.best.step.outside:
            notes.append(self._doubt())
        notes += self.best.few_steps
        if self.best.bounds:
            notes.append(
                "Within bounds: likely, if the upper end of the interval is; in doubt,"
                " if only the calculated value is."
            )
        notes.append(self._worth())
        if not self.best.step.outside and any(
            offer.step.outside for offer in self.offers
        ):
            notes.append("A ? is a step unlike all that the model was compared with.")
        taken = {offer.step.cluster.gpu.assumed: None for offer in self.offers}
        notes += filter(None, taken)
        notes += _rent_notes(self.offers)
        notes += [f"Without {gpu}: {why}" for gpu, why in self.left_out.items()]
        return tuple(notes)

    def _lead(self) -> str:
        if not self.best.bounds:
            return "The fewest GPUs that hold it:"
        if not self.kept:
            return "Nothing stays within bounds. The nearest:"
        if self.best.days is None:
            return "The fastest within bounds:"
        return "The cheapest within bounds:"

    def _worth(self) -> str:
        if self.best.tokens is None:
            return (
                "Calculated, not measured: the upper end of the interval of the fullest"
                " GPU's memory fits."
            )
        return (
            "Calculated, not measured: eight of ten published runs were within the days"
            " in brackets. Failures, saves and the power of all but the GPUs are left"
            " out."
        )

    def _advice(self) -> str:
        """What would do, where nothing keeps to what was asked."""
        best = self.best
        run = best.bill
        assert run is not None  # else nothing is bounded
        assert best.tokens is not None
        enough = []
        if best.days is not None:
            enough.append(f"{significant(run.days_interval[1])} days")
        if best.dollars is not None:
            enough.append(f"{significant(run.usd_interval[1])} US$")
        _, upper = best.excess
        tokens = tokens_text(best.tokens / upper)
        return f"With these {' and '.join(enough)} are likely to do, or {tokens}."

    def _doubt(self) -> str:
        """Why the best, which is like no published step, may be otherwise, and the best
        of those that are like some.
        """
        text = f"A ? is where {'; '.join(self.best.step.outside)}."
        vouched = [
            offer
            for offer in self.offers
            if not offer.step.outside and offer.keeps == self.best.keeps
        ]
        if vouched:
            text += f" The first that is like published runs: {vouched[0]}."
        return text

    def table(self) -> Table:
        """A row for each GPU, and the notes below."""
        best = self.best
        headings = ["GPUs", "tokens/s", "memory", "US$/h", "power"]
        days = 0.0
        if best.bill is not None:
            days = best.bill.days
            unit, _ = _time(best.bill, days)
            headings = ["GPUs, power", unit, "US$", "energy"]
        if best.bounds:
            headings.append("within bounds")
        columns = zip(*(_row(offer, days) for offer in self.offers), strict=True)
        # an empty column is left out
        filled = [
            (heading, cells)
            for heading, cells in zip(headings, columns, strict=True)
            if any(cells)
        ]
        return Table(
            tuple(zip(*(cells for _, cells in filled), strict=True)),
            tuple(heading for heading, _ in filled),
            title=self._title(),
            notes=self.notes,
        )

    def _title(self) -> str:
        """The model, what is asked for, and what all steps share."""
        best = self.best
        asked = "" if best.tokens is None else tokens_text(best.tokens)
        batches = sorted({offer.step.tokens for offer in self.offers})
        batch = f"{batches[0]:,}"
        if len(batches) > 1:
            batch += f" to {batches[-1]:,}"
        library = best.step.layout.software.library or "a program of one's own"
        lines = (
            str(best.step.model),
            f"{asked} {best.bounds}".strip(),
            f"{batch} tokens a step, {best.step.layout.dtype}, {library}",
        )
        return "\n".join(filter(None, lines))


def _row(offer: Offer, days: float) -> tuple[str, ...]:
    """An offer's row of a table, its time in the unit that suits `days`."""
    machines = _machines(offer.step)
    layout = offer.step.layout.short
    if offer.step.outside:
        layout += " ?"
    watts = offer.step.cluster.gpu.tdp_w
    power = "" if watts is None else format_si(watts * offer.gpus, "W")
    run = offer.bill
    if run is None:
        speed = format_si(offer.step.tokens_per_s, "tokens/s")
        usd = offer.usd_per_hour
        return (
            f"{machines}, {layout}",
            speed.removesuffix(" tokens/s"),
            f"{offer.step.memory_bytes / offer.step.capacity_bytes:.0%}",
            "" if usd is None else _short_usd(usd),
            power,
        )
    rent = ""
    if run.usd > 0:
        low, high = map(_short_usd, run.usd_interval)
        rent = f"{_short_usd(run.usd)} ({low} to {high})"
    _, time = _time(run, days)
    energy = "" if run.kwh is None else format_si(1000 * run.kwh, "Wh")
    # no room for another column
    gpus = ", ".join(filter(None, (machines, power, layout)))
    cells = (gpus, time, rent, energy)
    return (*cells, offer.keeps) if offer.bounds else cells


def _short_usd(usd: float) -> str:
    """Dollars in a table: 29_800 -> "29.8k"."""
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if usd >= size:
            return f"{significant(usd / size)}{prefix}"
    return significant(usd)


def _rent_notes(offers: Sequence[Offer]) -> list[str]:
    """Where the rents of some offers were read, that others ask otherwise, and whose
    rent is unknown.
    """
    rents = [RENTS.get(offer.step.cluster.gpu.name) for offer in offers]
    pages = {
        (rent.page, rent.read_on)
        for rent, offer in zip(rents, offers, strict=True)
        if rent is not None
        and rent.page
        and offer.usd_per_gpu_hour == rent.usd_per_gpu_hour
    }
    notes = [
        f"The rents are those of {page} on {read_on}, on demand, of whole machines by"
        " the GPU; others ask less or more."
        for page, read_on in sorted(pages)
    ]
    unknown = {
        offer.step.cluster.gpu.name: None
        for offer in offers
        if offer.usd_per_gpu_hour is None
    }
    if unknown:
        notes.append(
            f"No rent is known for {' and '.join(unknown)}: say what an hour of a GPU"
            " costs (--rent, usd_per_gpu_hour)."
        )
    return notes
