"""The clinic: a broken training, what can be looked at for a price in minutes, and an answer of cause and mend."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from exercises.nb17.cases import BrokenRun, broken
from labkit.core.display import Note, Shown, ShownAsTable, Table, brief_repr
from labkit.core.errors import BadArgument, nearest
from labkit.core.kinds import Items
from labkit.core.parameters import Size, checked
from labkit.lesson.checks import NotYet, Todo
from labkit.lesson.exercise_files import exercise

MOST_ASKED = 3


@dataclass(eq=False, repr=False)
class Case(Shown):
    """A case of the clinic, as a reader works on it: what was asked for, which answers were wrong, and the minutes."""

    number: str
    seed: int
    draw: Callable[[], BrokenRun]
    asked: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    solved: bool = False

    @functools.cached_property
    def broken(self) -> BrokenRun:
        """The broken training, which is drawn when it is first looked at: that may need a run."""
        return self.draw()

    @property
    def minutes(self) -> int:
        """What the evidence and the wrong answers have cost so far."""
        return sum(self.asked.values()) + sum(self.wrong.values())

    def menu(self) -> Table:
        """What can be asked for."""
        rows = tuple((name, e.what, str(e.minutes)) for name, e in self.broken.evidence().items() if e.minutes)
        return Table(rows, ("case.ask(...)", "shows", "minutes"), f"You may ask for {MOST_ASKED} of these")

    def __str__(self) -> str:
        return f"Case {self.number}, seed {self.seed}. {self.broken.alarm()}\n{self.menu()}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(Table(((self.broken.alarm(),),), title=f"Case {self.number}, seed {self.seed}"))
        for evidence in self.broken.evidence().values():
            if not evidence.minutes:
                display(evidence.show())
        display(self.menu())

    @checked
    def ask(self, *names: str) -> None:
        """Show pieces of evidence, for their minutes; a second look at the same costs nothing.

        Raises BadArgument, and charges nothing, for what there isn't and for more than three.
        """
        from IPython.display import display

        evidence = self.broken.evidence()
        for name in names:
            if name not in evidence:
                near = " or ".join(nearest(name, list(evidence)))
                raise BadArgument(f"There is no evidence {name!r}; did you mean {near}?")
        asked = self.asked | {name: evidence[name].minutes for name in names if evidence[name].minutes}
        if len(asked) > MOST_ASKED:
            raise BadArgument(
                f"Expected at most {MOST_ASKED} looks in all, got {', '.join(asked)}. Answer with what you know."
            )
        self.asked = asked
        for name in names:
            display(evidence[name].show())
        display(Note(f"Looked at: {_listed(asked)}. {MOST_ASKED - len(asked)} more may be asked for by name."))

    def answer(self, *, cause: object, mend: object) -> Answer:
        """What `lab.check` judges: a cause by its name, and a mend as {setting: value}; `...` leaves them open."""
        return Answer(self, cause, mend)


@dataclass(frozen=True, repr=False)
class Answer(Shown):
    """A cause and a mend for a case."""

    case: Case
    cause: object
    mend: object

    def __str__(self) -> str:
        return f"Case {self.case.number}: cause {brief_repr(self.cause)}, mend {brief_repr(self.mend)}."


@checked
def case(number: str, seed: Size = 0) -> Case:
    """The case of an exercise such as "17.3a"; each seed draws another rank, layer, step or size.

    Raises UnknownExercise, and BadArgument for an exercise that isn't a case.
    """
    exercise(number)
    if not number.startswith("17"):
        raise BadArgument(f"Expected a case of notebook 17, such as '17.3a', got {number!r}.")
    return Case(number, seed, functools.partial(broken, number, seed))


def judge(number: str, answer: object) -> str:
    """The check of a case: charge a wrong answer's minutes once, and say at the end what the case has cost."""
    if not isinstance(answer, Answer) or answer.case.number != number:
        raise NotYet(f"Expected what the answer(...) of case {number} returns, got {brief_repr(answer)}.")
    if answer.cause is ... or answer.mend is ...:
        raise Todo("Look at the evidence, then replace the dots with a cause and a mend.")
    case = answer.case
    try:
        praise = case.broken.judge(answer.cause, answer.mend)
    except NotYet as wrong:
        if not case.solved and (minutes := wrong.details.get("minutes")):
            case.wrong[f"{answer.cause} {answer.mend}"] = int(str(minutes))
        raise
    case.solved = True
    return f"{praise} It cost {case.minutes} minutes: {_listed(case.asked)}; wrong answers {sum(case.wrong.values())}."


def _listed(asked: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {minutes}" for name, minutes in asked.items()) or "no evidence"


@dataclass(frozen=True, repr=False)
class Score(ShownAsTable):
    """Minutes by case, of those that are solved, beside those of two simple ways to play."""

    cases: tuple[Case, ...]

    @property
    def minutes(self) -> int | None:
        """The sum over solved cases; None where none is solved."""
        solved = [case.minutes for case in self.cases if case.solved]
        return sum(solved) if solved else None

    def table(self) -> Table:
        """A row for each case, then the sum."""
        rows = [
            (f"{c.number}, seed {c.seed}", _listed(c.asked), str(len(c.wrong)), str(c.minutes) if c.solved else "open")
            for c in self.cases
        ]
        total = ("solved", "", "", "none yet" if self.minutes is None else str(self.minutes))
        return Table((*rows, total), ("case", "asked for", "wrong answers", "minutes"))


@checked
def score(cases: Annotated[Sequence[Case], Items(1)]) -> Score:
    """What these cases have cost."""
    return Score(tuple(cases))
