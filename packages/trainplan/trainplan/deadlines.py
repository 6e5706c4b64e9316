"""Days until a date as people write it: 2026-12-04, 4 Dec, Friday, tomorrow."""

from __future__ import annotations

import re
from datetime import date, datetime

_WEEKDAYS = (
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
)
_FORMS = ("%Y-%m-%d", "%d %b %Y", "%b %d %Y", "%d %B %Y", "%B %d %Y")
_LEAP_YEAR = 2000  # which has every day that a date without a year may name


def today() -> date:
    """The clock's day."""
    return date.today()


def days_until(text: str, from_day: date) -> int:
    """Days from `from_day` to the date that `text` names: a weekday is the next one, a
    date without a year the next such. Raises ValueError for a date that isn't to come.
    """
    words = " ".join(re.sub("[,.]", " ", text).casefold().split())
    if words == "tomorrow":
        return 1
    weekday = _weekday(words.removeprefix("next ").removeprefix("this "))
    if weekday is not None:
        # today's own name is a week from now
        return (weekday - from_day.weekday() - 1) % 7 + 1
    day = _date(words, from_day)
    if day is None:
        raise ValueError(
            f"Expected --by to be a date such as 2026-12-04, 4 Dec or Friday, got"
            f" {text!r}."
        )
    if day <= from_day:
        raise ValueError(
            f"Expected --by to be a day to come, got {day}; today is {from_day}."
        )
    return (day - from_day).days


def _weekday(word: str) -> int | None:
    """0 for "mon" to 6 for "sunday", by three letters or more."""
    for number, name in enumerate(_WEEKDAYS):
        if len(word) >= 3 and name.startswith(word):
            return number
    return None


def _date(words: str, from_day: date) -> date | None:
    """The date of a text in lower case; None for what is none."""
    for form in _FORMS:
        day = _parsed(words, form)
        if day is not None:
            return day
        # without its year, in which a date may have passed
        if form.endswith("%Y"):
            day = _parsed(f"{words} {_LEAP_YEAR}", form)
        if day is not None:
            return _next(day, from_day)
    return None


def _parsed(text: str, form: str) -> date | None:
    try:
        return datetime.strptime(text, form).date()
    except ValueError:
        return None


def _next(day: date, from_day: date) -> date:
    """The next day, after another, with the month and day of a date."""
    year = from_day.year
    while True:
        try:
            following = day.replace(year=year)
        except ValueError:  # 29 February
            year += 1
            continue
        if following > from_day:
            return following
        year += 1
