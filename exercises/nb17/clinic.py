"""The clinic: a broken training, what can be looked at for a price in minutes, an
answer, and how sure it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from exercises.nb17 import evidence, health
from exercises.nb17.cases import ALARM_OF, CAUSES, SETTINGS, BrokenRun, broken, choices
from exercises.nb17.evidence import LOOKS
from labkit.core.arguments import as_float, nearest
from labkit.core.display import Note, Shown, ShownAsTable, Table, brief_repr
from labkit.core.errors import BadArgument
from labkit.core.parameters import Items, checked
from labkit.lesson.checks import NotYet, Todo

_CAUSES_OF_AN_ALARM = 4
_WRONG_ANSWER_MINUTES = 10 + 30  # the restart, and the steps that are trained in vain


@dataclass(eq=False, repr=False)
class Case(Shown):
    """A case of the clinic, as a reader works on it: what was looked at, what was
    answered, and the minutes.
    """

    number: str
    seed: int
    broken: BrokenRun
    asked: dict[str, int] = field(default_factory=dict)
    # minutes, how sure, whether right
    answered: dict[str, tuple[int, float, bool]] = field(default_factory=dict)
    # mends with which the run is healthy, and which are paid for
    paid: set[str] = field(default_factory=set)

    @property
    def solved(self) -> bool:
        """Whether an answer was right."""
        return any(right for _, _, right in self.answered.values())

    @property
    def minutes(self) -> int:
        """What looks, answers and their mends have cost so far."""
        return sum(self.asked.values()) + sum(
            minutes for minutes, *_ in self.answered.values()
        )

    def __str__(self) -> str:
        return f"Case {self.number}, seed {self.seed}. {self.broken.alarm()}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(
            Table(
                ((self.broken.alarm(),),), title=f"Case {self.number}, seed {self.seed}"
            )
        )
        display(
            Note(
                f"Looked at: {_listed(self.asked)}. ask(...) shows more, by the names"
                " in clinic.looks()."
            )
        )

    def ask(self, *names: object) -> None:
        """Show pieces of evidence, for their minutes; a second look and a wrong name
        cost nothing.
        """
        from IPython.display import display

        for name in names:
            if not isinstance(name, str) or name not in LOOKS:
                near = " or ".join(nearest(str(name), list(LOOKS)))
                display(
                    Note(
                        f"There is no look {brief_repr(name)}, and it costs nothing;"
                        f" did you mean {near}?"
                    )
                )
                continue
            if not self.solved:
                self.asked.setdefault(name, int(LOOKS[name]["minutes"]))
            display(Note(f"{name}: {LOOKS[name]['shows']}"))
            display(evidence.show(self.broken, name))
        display(
            Note(
                f"Looked at: {_listed(self.asked)}. Minutes in all so far:"
                f" {self.minutes}."
            )
        )

    def answer(
        self, *, cause: object = ..., mend: object = ..., sure: object = ...
    ) -> Answer:
        """What `lab.check` judges: a cause, a mend as {setting: value}, how sure, 0 to
        1; `...` leaves them open.
        """
        return Answer(self, cause, mend, sure)


class Answer(NamedTuple):
    """A cause and a mend for a case, and the probability that both are right."""

    case: Case
    cause: object
    mend: object
    sure: object


# The cases of this process, by exercise and seed, as they were opened.
_opened: dict[tuple[str, int], Case] = {}


class NoCase(BadArgument):
    """There is no such case; IPython shows the message alone."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def case(number: object, seed: object = 0) -> Case:
    """The case of an exercise such as "17.3a", as it stands: each seed draws another.
    NoCase where there is none.
    """
    if number not in list(ALARM_OF) or not (isinstance(seed, int) and seed >= 0):
        request = f"{brief_repr(number)}, seed {brief_repr(seed)}"
        raise NoCase(
            f"Expected one of the cases {', '.join(ALARM_OF)} and a seed of 0 or more,"
            f" got {request}."
        )
    key = (str(number), seed)
    if key not in _opened:
        _opened[key] = Case(*key, broken(*key))
    return _opened[key]


def beside_last_week(case: Case) -> dict[str, list[float]]:
    """The loss of each step: of a case's run, and of last week's on the same images."""
    runs = {
        "this run": case.broken.launched,
        "last week's": health.healthy(case.broken.fault),
    }
    return {name: health.losses(run) for name, run in runs.items()}


def steps_away(losses: Mapping[str, Sequence[float]], percent: float) -> int:
    """In how many steps two runs' losses are more than so many percent apart."""
    this_run, last_weeks = losses.values()
    pairs = zip(this_run, last_weeks, strict=True)
    return sum(abs(loss - usual) > percent / 100 * usual for loss, usual in pairs)


def judge(number: str, answer: object) -> str:
    """The check of a case: charge an answer's minutes once, and say at the end what the
    case has cost.
    """
    if not isinstance(answer, Answer) or answer.case.number != number:
        raise NotYet(
            f"Expected what the answer(...) of case {number} returns, got"
            f" {brief_repr(answer)}."
        )
    case = answer.case
    sure = as_float(answer.sure)
    if ... in (answer.cause, answer.mend, answer.sure):
        raise Todo(
            "Look at the evidence, then replace the dots with a cause, a mend and how"
            " sure you are."
        )
    if sure is None or not 0 <= sure <= 1:
        raise NotYet(
            "Expected sure to be a probability from 0 to 1, got"
            f" {brief_repr(answer.sure)}."
        )
    try:
        praise, minutes = case.broken.judge(answer.cause, answer.mend)
        mend_minutes = minutes
        right = True
    except NotYet as wrong:
        praise = str(wrong)
        minutes = int(str(wrong.details.get("minutes", 0)))
        mend_minutes = int(str(wrong.details.get("mend_minutes", 0)))
        right = False
    if minutes and not case.solved:
        mend = _in_order(answer.mend)
        minutes -= mend_minutes if mend in case.paid else 0
        case.answered.setdefault(f"{answer.cause} {mend}", (minutes, sure, right))
        if mend_minutes:
            case.paid.add(mend)
    if not right:
        raise NotYet(praise)
    rest = case.minutes - sum(case.asked.values())
    return (
        f"{praise} It cost {case.minutes} minutes: {_listed(case.asked)}; answers and"
        f" mends {rest}."
    )


def _in_order(mend: object) -> str:
    return str(sorted(mend.items())) if isinstance(mend, dict) else str(mend)


def rerun(case: Case, guard: Callable[..., object]) -> Table:
    """How each rank ends when a case's training is run once more, with a guard before
    each collective.
    """
    launched = health.run(case.broken.job, case.broken.fault, guard=guard)
    rows = (
        (f"rank {i}", end or "is done")
        for i, end in health.ends(launched, case.broken.job).items()
    )
    return Table(tuple(rows), title=f"After {health.steps(launched)} steps")


def _listed(asked: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{name} {minutes}" for name, minutes in asked.items()) or "nothing"
    )


def causes() -> Table:
    """The causes to choose from, and where each shows."""
    return Table(tuple(CAUSES.items()), ("cause", "shows in"))


def mends() -> Table:
    """The settings that a mend may change, their values, and the minutes that it takes
    beside a restart.
    """
    rows = tuple(
        (name, row["is"], choices(name), row["minutes"])
        for name, row in SETTINGS.items()
    )
    return Table(rows, ("setting", "is", "may be", "minutes"))


def looks() -> Table:
    """What can be asked for, its minutes, and who documents it."""
    rows = tuple(
        (name, row["shows"], row["minutes"], row["source"])
        for name, row in LOOKS.items()
    )
    return Table(rows, ("case.ask(...)", "shows", "minutes", "documented by"))


@checked
@dataclass(frozen=True, repr=False)
class Score(ShownAsTable):
    """Minutes by case, of those that are solved, and how far the player's probabilities
    were from what came true.
    """

    cases: Annotated[Sequence[Case], Items(1)]

    @property
    def minutes(self) -> int | None:
        """The sum over solved cases; None where none is solved."""
        return sum(case.minutes for case in self.cases if case.solved) or None

    @property
    def brier(self) -> float | None:
        """The mean square of how sure minus right (1) or wrong (0), over all answers;
        always saying 0.5 gives 0.25.
        """
        squares = [
            (sure - right) ** 2
            for case in self.cases
            for _, sure, right in case.answered.values()
        ]
        return sum(squares) / len(squares) if squares else None

    def without_thought(self) -> Note:
        """What two ways to play would have cost that think of nothing: to ask for
        everything, and to guess among the causes of the alarm.
        """
        of_all_looks = sum(int(look["minutes"]) for look in LOOKS.values())
        guesses = (_CAUSES_OF_AN_ALARM - 1) / 2  # wrong ones, on average
        asking = len(self.cases) * of_all_looks
        guessing = len(self.cases) * guesses * _WRONG_ANSWER_MINUTES
        return Note(
            f"Asking for everything: {asking:,} minutes. Guessing: {guessing:,.0f}"
            " minutes, and the mends."
        )

    def table(self) -> Table:
        """A row for each case, then the sum."""
        rows = []
        for c in self.cases:
            guesses = ", ".join(
                f"{sure:.0%} {'right' if right else 'wrong'}"
                for _, sure, right in c.answered.values()
            )
            rows.append(
                (
                    f"{c.number}, seed {c.seed}",
                    _listed(c.asked),
                    guesses,
                    str(c.minutes) if c.solved else "open",
                )
            )
        brier = "none yet" if self.brier is None else f"Brier score {self.brier:.2f}"
        rows.append(
            (
                "solved",
                "",
                brier,
                "none yet" if self.minutes is None else str(self.minutes),
            )
        )
        return Table(tuple(rows), ("case", "looked at", "said and was", "minutes"))


def score() -> Score:
    """The score of the cases that were opened, of each exercise the first seed."""
    first: dict[str, Case] = {}
    for (number, _), case in sorted(_opened.items(), key=lambda item: item[0][0]):
        first.setdefault(number, case)
    return Score(tuple(first.values()))
