"""The course as a whole: how good the reader's guesses are, and what became of every claim."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from labkit.core import results
from labkit.core.data_table import TableRow, read_table
from labkit.core.display import ShownAsTable, Table
from labkit.core.parameters import checked
from labkit.core.paths import DATA, RECORDED
from labkit.core.results import Measurement, Verdict
from labkit.core.units import significant
from labkit.lesson import guesses, journal
from labkit.measure import published
from labkit.measure.machine import machine

_FEW = 5  # guesses, below which nothing is said of where they err
_WRAPPER = textwrap.TextWrapper(  # of what a terminal shows; an address stays whole
    110, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
)


@dataclass(frozen=True, repr=False)
class Calibration(ShownAsTable):
    """Guesses that were made before measuring: by what was guessed, each (guess, measured), both in one unit."""

    pairs: Mapping[str, tuple[tuple[float, float], ...]]
    whose: str = "Your"

    def table(self) -> Table:
        """A row for each kind of guess and one for all."""
        everything = tuple(pair for pairs in self.pairs.values() for pair in pairs)
        rows = tuple(_judged(name, pairs) for name, pairs in {**self.pairs, "all": everything}.items() if pairs)
        note = "A ratio of 2 says that twice as much was measured as guessed; the middle is the median of all ratios."
        none = "No guess has a measurement yet. The cells with lab.predict wait for yours."
        head = ("guesses of", "number", "within a factor of 2", "measured / guess, middle", "guesses are")
        title = f"{self.whose} guesses, made before measuring"
        return Table(rows, head if rows else (), title, (note if rows else none,))


def _judged(name: str, pairs: tuple[tuple[float, float], ...]) -> tuple[str, ...]:
    close = sum(guess / 2 <= measured <= 2 * guess for guess, measured in pairs)
    middle = statistics.median(measured / guess for guess, measured in pairs)
    lean = "too low" if middle > 1.1 else "too high" if middle < 1 / 1.1 else "neither too low nor too high"
    shown = lean if len(pairs) >= _FEW else "too few to tell"
    return name, str(len(pairs)), f"{close} ({close / len(pairs):.0%})", f"{significant(middle, 2)}x", shown


def calibration() -> Calibration:
    """Compare all guesses of this reader with what this machine measured, simulated or calculated afterwards.

    Left out are guesses made after a measurement, measurements on a busy machine, and numbers that aren't above 0.
    """
    return calibrated(guesses.before_measuring())


@checked
def calibrated(pairs: Iterable[tuple[float, Measurement]], whose: str = "Your") -> Calibration:
    """Sort guesses, each with what was measured afterwards, by what was guessed."""
    found: dict[str, tuple[tuple[float, float], ...]] = {}
    for guess, m in pairs:
        kind = _kind(m.unit)
        found[kind] = (*found.get(kind, ()), (guess, m.value))
    return Calibration(found, whose)


def _kind(unit: str) -> str:
    if unit in ("s", "ms", "µs", "ns", "min", "h", "days", "years"):
        return "times"
    return "rates" if unit.endswith("/s") else "ratios" if unit == "x" else "shares and others"


@dataclass(frozen=True)
class Claim:
    """A claim under test: the verdicts of this machine and of recorded ones, and what others published about it.

    `evidence` are rows of the published table "claims_evidence"; `needs` is what a verdict needs beyond two cores.
    """

    id: str
    text: str
    notebooks: str
    needs: str
    here: tuple[Verdict, ...]
    elsewhere: tuple[Verdict, ...]
    evidence: tuple[Mapping[str, str], ...]

    @property
    def judged(self) -> bool:
        """Whether this machine gave a verdict: a claim that was "not measured" has none."""
        return any(verdict.verdict != "not measured" for verdict in self.here)

    @property
    def missing(self) -> str:
        """What a verdict on this machine would need; empty where there is one."""
        if self.judged:
            return ""
        told = dict.fromkeys(v.because.removeprefix("needs ") for v in self.here)
        return "; ".join(told) or f"notebook {self.notebooks.replace(' ', ', ')}" + (self.needs and f", {self.needs}")


@dataclass(frozen=True, repr=False)
class Claims(ShownAsTable):
    """All claims: as a table in a notebook, and claim by claim, with the reasons, as text."""

    claims: tuple[Claim, ...]

    def _count(self) -> str:
        judged, backed = sum(c.judged for c in self.claims), sum(bool(c.evidence) for c in self.claims)
        return f"This machine has judged {judged} of {len(self.claims)} claims; {backed} have published evidence."

    def table(self) -> Table:
        """A row for each claim."""
        rows = tuple(
            (
                f"{c.id} {c.text}",
                "; ".join(f"{v.verdict} ({v.section})" for v in c.here),
                "; ".join(f"{v.machine}: {v.verdict} ({v.section})" for v in c.elsewhere),
                "; ".join("{supports}: {finding} ({device}, {source})".format(**e) for e in c.evidence),
                c.missing,
            )
            for c in self.claims
        )
        head = ("claim", "here", "recorded runs", "published: does it support the claim?", "a verdict here needs")
        return Table(rows, head, notes=(self._count(),))

    def __str__(self) -> str:
        parts = [self._count()]
        for c in self.claims:
            lines = [f"here, {v.verdict} ({v.section}): {v.because}" for v in c.here]
            lines += [f"{v.machine}, {v.verdict} ({v.section}): {v.because}" for v in c.elsewhere]
            lines += ["published, {supports}: {finding} ({device}; {source}, {link})".format(**e) for e in c.evidence]
            lines += [f"a verdict here needs {c.missing}"] if c.missing else []
            parts.append("\n".join([f"{c.id} {c.text}", *map(_WRAPPER.fill, lines)]))
        return "\n\n".join(parts)


def claims() -> Claims:
    """Collect the 32 claims with their verdicts and evidence. Raises DataError for a damaged table."""
    here, evidence = machine().name, published.table("claims_evidence")
    own = [e for e in results.results().entries() if isinstance(e, Verdict) and e.machine == here]
    recorded = [e for path in sorted(RECORDED.glob("*.jsonl")) for e in results.read(path)[0] if isinstance(e, Verdict)]

    def about(claim: str, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """The last verdict of each machine and section."""
        return tuple({(v.machine, v.section): v for v in verdicts if v.claim == claim}.values())

    def claim(row: TableRow) -> Claim:
        name, text = row["id"], journal.claims()[row["id"]]
        found = tuple(row for row in evidence if row["claim"] == name)
        return Claim(name, text, row["notebooks"], row["needs"], about(name, own), about(name, recorded), found)

    return Claims(tuple(read_table(DATA / "claims.csv", claim)))
