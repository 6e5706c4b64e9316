"""The course as a whole: what became of every claim, and how good the reader's guesses
are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from labkit.core import results
from labkit.core.data_table import TableRow, read_table
from labkit.core.display import ShownAsTable, Table
from labkit.core.errors import DataError
from labkit.core.paths import DATA, RECORDED
from labkit.core.results import Verdict
from labkit.lesson import claims as tested
from labkit.lesson.calibration import calibration as calibration
from labkit.measure import published
from labkit.measure.machine import machine

_WRAPPER = textwrap.TextWrapper(  # of what a terminal shows; an address stays whole
    110,
    initial_indent="  ",
    subsequent_indent="    ",
    break_long_words=False,
    break_on_hyphens=False,
)


@dataclass(frozen=True)
class Claim:
    """A claim under test: the verdicts of this machine and of recorded ones, and what
    others published about it.

    `evidence` are rows of the published table "claims_evidence"; `needs` is what a
    verdict needs beyond two cores.
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
        """Whether this machine gave a verdict: a claim that was "not measured" has
        none.
        """
        return any(verdict.verdict != "not measured" for verdict in self.here)

    @property
    def missing(self) -> str:
        """What a verdict on this machine would need; empty where there is one."""
        if self.judged:
            return ""
        needs = dict.fromkeys(v.because.removeprefix("needs ") for v in self.here)
        return "; ".join(needs) or f"notebook {self.notebooks.replace(' ', ', ')}" + (
            self.needs and f", {self.needs}"
        )


@dataclass(frozen=True, repr=False)
class Claims(ShownAsTable):
    """All claims: as a table in a notebook, and claim by claim, with machines and
    reasons, as text.
    """

    claims: tuple[Claim, ...]

    def _count(self) -> str:
        judged = sum(c.judged for c in self.claims)
        backed = sum(bool(c.evidence) for c in self.claims)
        return (
            f"This machine has judged {judged} of {len(self.claims)} claims; {backed}"
            " have published evidence."
        )

    def table(self) -> Table:
        """A row for each claim."""
        rows = tuple(
            (
                f"{c.id} {c.text}",
                "; ".join(f"{tested.judged_anew(v)} ({v.section})" for v in c.here),
                "; ".join(
                    dict.fromkeys(
                        f"{tested.judged_anew(v)} ({v.section})" for v in c.elsewhere
                    )
                ),
                "; ".join(
                    "{supports}: {finding} ({device}, {source})".format(**e)
                    for e in c.evidence
                ),
                c.missing,
            )
            for c in self.claims
        )
        head = (
            "claim",
            "here",
            "recorded runs",
            "published: does it support the claim?",
            "a verdict here needs",
        )
        return Table(rows, head, notes=(self._count(),))

    def __str__(self) -> str:
        parts = [self._count()]
        for c in self.claims:
            lines = [
                f"here, {tested.judged_anew(v)} ({v.section}): {v.because}"
                for v in c.here
            ]
            lines += [
                f"{v.machine}, {tested.judged_anew(v)} ({v.section}): {v.because}"
                for v in c.elsewhere
            ]
            lines += [
                "published, {supports}: {finding} ({device}; {source}, {link})".format(
                    **e
                )
                for e in c.evidence
            ]
            lines += [f"a verdict here needs {c.missing}"] if c.missing else []
            parts.append("\n".join([f"{c.id} {c.text}", *map(_WRAPPER.fill, lines)]))
        return "\n\n".join(parts)


def claims() -> Claims:
    """Collect all claims with their verdicts and evidence. Raises DataError for a
    damaged table.
    """
    here = machine().name
    evidence = published.table("claims_evidence")
    own = [
        e
        for e in results.results().entries()
        if isinstance(e, Verdict) and e.machine == here
    ]
    recorded = [
        e
        for path in sorted(RECORDED.glob("*.jsonl"))
        for e in results.read(path)[0]
        if isinstance(e, Verdict)
    ]

    def about(claim: str, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """The last verdict of each machine and section."""
        return tuple(
            {(v.machine, v.section): v for v in verdicts if v.claim == claim}.values()
        )

    def claim(row: TableRow) -> Claim:
        name = row["id"]
        text = tested.claims()[row["id"]]
        others = tuple(row for row in evidence if row["claim"] == name)
        return Claim(
            name,
            text,
            row["notebooks"],
            row["needs"],
            about(name, own),
            about(name, recorded),
            others,
        )

    return Claims(tuple(read_table(DATA / "claims.csv", claim, DataError)))
