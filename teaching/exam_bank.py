"""The templates of the exams' items, and what is drawn from them: numbers, wrong
options, and statements that are true or not.

The workbook's templates are public, and so is what practice exams draw from them. A
private bank is a folder with a secret, which decides what is drawn, and with items of
the teacher's own. docs/teaching/exams.md has the format of both.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import itertools
import math
import random
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labkit.core.errors import BadArgument, DataError
from labkit.core.own_folder import make_private, writing
from labkit.core.paths import ROOT
from teaching import own_items
from teaching.arithmetic import Names, Value, filled_in, value

FOLDER = Path(__file__).with_name("item_bank")
SECRET = "secret.txt"
KINDS = ("calculate", "explain", "judge")
VERDICTS = ("True", "Not true")
WRONG_SHOWN = 3
_TRIES = 500  # draws until the conditions of a template hold
_CHOICE = re.compile(r"\[([^\[\]|]*)\|([^\[\]|]*)\]")

Option = tuple[str, str, str]  # text, why, arithmetic or ""


@dataclass(frozen=True)
class Item:
    """A question and four options (text, why, arithmetic if any), the right one first;
    a point stands for a minute. `values` are the numbers that were drawn for it.
    """

    notebook: str
    name: str
    kind: str
    points: int
    exercise: str
    misconception: str
    task: str
    options: tuple[Option, ...]
    code: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)

    def shown(self) -> tuple[str, ...]:
        """What a student sees, whatever the order of the options."""
        return (self.task, self.code, *sorted(text for text, _, _ in self.options))


@dataclass(frozen=True)
class Template:
    """What items of one name are drawn from. `item` has its texts with names in
    braces, and any number of wrong options from three on.

    `draw` has the values that each name can take, `let` names that are calculated from
    these, `where` the conditions that have to hold. `versions` are other items of the
    same name, of which one is drawn.
    """

    item: Item
    draw: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    let: Mapping[str, str] = field(default_factory=dict)
    where: Sequence[str] = ()
    versions: tuple[Template, ...] = ()

    def instance(self, draw: random.Random) -> Item:
        """An item with its numbers, its statement and three wrong options drawn.

        Raises BadArgument where the template's conditions never hold.
        """
        version = draw.choice((self, *self.versions))
        for _ in range(_TRIES):
            names = version._names(draw)
            if all(value(condition, names) for condition in version.where):
                item = _drawn(version.item, names, draw)
                if item is not None:
                    return item
        raise BadArgument(
            f"{self.item.name}: in {_TRIES} draws there was none whose conditions hold"
            " and whose options all differ. Give its numbers more values, or more wrong"
            " options."
        )

    def _names(self, draw: random.Random) -> dict[str, Value]:
        names = {name: draw.choice(values) for name, values in self.draw.items()}
        for name, expression in self.let.items():
            names[name] = value(expression, names)
        return names

    def varies(self) -> bool:
        """Whether two draws can differ in more than the order of the options."""
        draws = (self.instance(random.Random(i)).shown() for i in range(20))
        return len(set(draws)) > 1


def _drawn(item: Item, names: Names, draw: random.Random) -> Item | None:
    """The item of these values, or None if two of its options would look the same."""
    task = item.task
    flipped = False
    if item.kind == "judge":
        task, flipped = _stated(task, draw)
    options = [_option(option, names) for option in item.options]
    if flipped:
        options = [(_flipped(text), why, by) for text, why, by in options]
    chosen = _chosen(item.kind, options, draw)
    if chosen is None:
        return None
    return replace(
        item,
        task=filled_in(task, names) if names else task,
        code=filled_in(item.code, names) if names else item.code,
        options=chosen,
        values=dict(names),
    )


def _stated(task: str, draw: random.Random) -> tuple[str, bool]:
    """The task with the first or the second of "[one way|the other way]", and whether
    it is the second, for which the options' verdicts are the opposite.
    """
    if not _CHOICE.search(task):
        return task, False
    second = draw.random() < 0.5
    return _CHOICE.sub(lambda found: found[1 + second], task), second


def _flipped(text: str) -> str:
    verdict, reason = text.split(":", 1)
    return f"{VERDICTS[verdict == VERDICTS[0]]}:{reason}"


def _option(option: Option, names: Names) -> Option:
    """An option of these values; its text may name the result of its arithmetic,
    `answer`.
    """
    text, why, arithmetic = option
    if arithmetic:
        names = {**names, "answer": value(arithmetic, names)}
    elif not names:
        return option
    return filled_in(text, names), filled_in(why, names), arithmetic


def _chosen(
    kind: str, options: Sequence[Option], draw: random.Random
) -> tuple[Option, ...] | None:
    """The right option and three wrong ones.

    As far as the wrong ones allow, the right one's number, or else its length, is the
    first, second, third or fourth equally often, and so is its distance from the
    others: whoever knows only that wrong numbers are made from the right one finds
    nothing.
    """
    sizes = _sizes(options)
    different = {text: i for i, (text, _, _) in reversed(list(enumerate(options)))}
    wrong = sorted(set(different.values()) - {0})
    groups: dict[int, dict[int, list[tuple[int, ...]]]] = {}
    for group in itertools.combinations(wrong, WRONG_SHOWN):
        shown = (0, *group)
        if kind != "judge" or _has_both_verdicts_twice([options[i] for i in shown]):
            place = _place_of_first([sizes[i] for i in shown])
            farness = _place_of_first(_distances([sizes[i] for i in shown]))
            groups.setdefault(place, {}).setdefault(farness, []).append(shown)
    if not groups:
        return None
    by_farness = groups[draw.choice(sorted(groups))]
    # wrong numbers are made from the right one, so it is in their middle more often
    farness = max(draw.choice(sorted(by_farness)), draw.choice(sorted(by_farness)))
    return tuple(options[i] for i in draw.choice(by_farness[farness]))


def _sizes(options: Sequence[Option]) -> list[float]:
    """The options' numbers, or their lengths where one of them has none."""
    numbers = [number(text) for text, _, _ in options]
    if None in numbers:
        return [len(text) for text, _, _ in options]
    return [float(each or 0) for each in numbers]


def _place_of_first(sizes: Sequence[float]) -> int:
    return sum(each < sizes[0] for each in sizes[1:])


def _distances(sizes: Sequence[float]) -> list[float]:
    """How far the logarithm of each size is from the mean of all."""
    logarithms = [math.log(abs(size) + 1e-3) for size in sizes]
    middle = sum(logarithms) / len(logarithms)
    return [abs(each - middle) for each in logarithms]


def _has_both_verdicts_twice(shown: Sequence[Option]) -> bool:
    true = sum(text.startswith(f"{VERDICTS[0]}:") for text, _, _ in shown)
    return true == len(shown) // 2


def number(text: str) -> float | None:
    """The number with which a text begins, with commas or without; None if there is
    none.
    """
    match = re.match(r"-?\d[\d,]*(\.\d+)?", text)
    return float(match[0].replace(",", "")) if match else None


# -- the files


def read_templates(path: Path) -> list[Template]:
    """The templates of a file of items, .toml or .md.

    Raises DataError with what is wrong, and in which item.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = own_items.read(text) if path.suffix == ".md" else _toml_items(text)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read as items: {error}") from error
    return [_template(row, path) for row in rows]


def _toml_items(text: str) -> list[dict[str, Any]]:
    rows = tomllib.loads(text).get("item", [])
    if not isinstance(rows, list) or not rows:
        raise BadArgument("expected tables that begin with [[item]], found none.")
    return rows


_DEFAULTS = {"points": 2, "exercise": "", "misconception": "", "code": ""}
_ITEM = {"notebook", "name", "kind", "task", "options", *_DEFAULTS}
_TEMPLATE = {"draw", "let", "where"}


def _template(row: Mapping[str, Any], path: Path) -> Template:
    """A template from its table; LabError where it can't be one."""
    public = path.parent == FOLDER
    row = {"notebook": path.stem, **row} if public else dict(row)
    name = f"{path}, item {row.get('name')!r}"
    try:
        template = _checked_template(row)
        template.instance(random.Random(0))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{name}: {error}") from error
    return template


def _checked_template(row: dict[str, Any]) -> Template:
    versions = row.pop("version", [])
    unknown = set(row) - _ITEM - _TEMPLATE
    missing = _ITEM - set(row) - set(_DEFAULTS)
    if unknown or missing:
        raise BadArgument(
            f"expected {', '.join(sorted(_ITEM | _TEMPLATE))}; unknown:"
            f" {sorted(unknown)}, missing: {sorted(missing)}."
        )
    if row["kind"] not in KINDS or not re.fullmatch(r"\d\d", row["notebook"]):
        raise BadArgument(
            f"expected a kind of {', '.join(KINDS)} and a notebook such as 05, got"
            f" {row['kind']!r} and {row['notebook']!r}."
        )
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", row["name"]):
        raise BadArgument("expected a name of small letters, digits and hyphens.")
    others = [_checked_template({**row, **version}) for version in versions]
    item = {key: row.get(key, default) for key, default in _DEFAULTS.items()}
    item |= {key: row[key] for key in _ITEM if key in row}
    item["options"] = _checked_options(row["options"], row["kind"])
    item["name"] = f"nb{row['notebook']}-{row['name']}"
    item["code"] = item["code"].strip()
    return Template(
        Item(**item),
        {key: _values(each) for key, each in row.get("draw", {}).items()},
        row.get("let", {}),
        row.get("where", []),
        tuple(others),
    )


def _checked_options(rows: Any, kind: str) -> tuple[Option, ...]:
    options = []
    for row in rows:
        text, why, *arithmetic = row
        options.append((text, why, *(arithmetic or [""])))
    if len(options) <= WRONG_SHOWN:
        raise BadArgument(
            f"expected the right option and at least {WRONG_SHOWN} wrong ones, got"
            f" {len(options)} options."
        )
    heads = {text.split(":")[0] for text, _, _ in options}
    if kind == "judge" and heads != set(VERDICTS):
        raise BadArgument(
            'a judge item needs options that begin with "True:" and "Not true:", got'
            f" {sorted(heads)}."
        )
    return tuple(options)


def _values(given: Any) -> list[Value]:
    """The values that a name can take: a list, or {from = 2, to = 8, step = 2}."""
    if isinstance(given, list) and given:
        return given
    if isinstance(given, dict) and set(given) | {"step"} == {"from", "to", "step"}:
        step = given.get("step", 1)
        count = math.floor((given["to"] - given["from"]) / step + 1e-9) + 1
        if 0 < count <= 10_000:
            return [round(given["from"] + i * step, 12) for i in range(count)]
    raise BadArgument(
        "expected a list of values, or from, to and step of at most 10,000 values, got"
        f" {given!r}."
    )


@functools.cache
def public_templates() -> tuple[Template, ...]:
    """The workbook's own, by notebook, in the order of the files."""
    paths = sorted(FOLDER.glob("*.toml"))
    return tuple(template for path in paths for template in read_templates(path))


# -- banks


@dataclass(frozen=True)
class Bank:
    """Templates, and the secret that decides what is drawn from them; without a secret
    it is for practice.
    """

    templates: tuple[Template, ...]
    secret: bytes = b""

    def draw(self, *purpose: object) -> random.Random:
        """Random numbers for a purpose, such as a template and a version: always the
        same with this secret, and unknown without it.
        """
        words = "\0".join(map(str, purpose)).encode()
        return random.Random(hmac.digest(self.secret, words, hashlib.sha256))

    def of(self, notebook: str, kind: str) -> list[Template]:
        """The templates of a notebook and a kind, in this bank's order."""
        templates = [
            template
            for template in self.templates
            if (template.item.notebook, template.item.kind) == (notebook, kind)
        ]
        self.draw("order", notebook, kind).shuffle(templates)
        return templates


def practice_bank() -> Bank:
    """The public templates, drawn from in a way that anybody can repeat."""
    return Bank(public_templates())


def read_bank(folder: Path) -> Bank:
    """The private bank in a folder: its secret, the public templates, and the items of
    its own in .toml and .md files.

    Raises DataError where there is no secret, or an item can't be read, or has the name
    of another one.
    """
    path = folder / SECRET
    try:
        secret = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder} is no private bank: {path} can't be read as a secret ({error})."
            f" Make one with `python -m teaching items new {folder}`."
        ) from error
    if len(secret) < 16:
        raise DataError(
            f"{path} is too short to be a secret: it has {len(secret)} bytes."
        )
    files = [
        path for path in sorted(folder.iterdir()) if path.suffix in (".toml", ".md")
    ]
    own = [
        template
        for path in files
        if path.name != "README.md"
        for template in read_templates(path)
    ]
    templates = (*public_templates(), *own)
    names = [template.item.name for template in templates]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{folder}: these names stand twice: {', '.join(twice)}.")
    return Bank(templates, secret)


_README = """# A private bank of exam items

Keep this folder for yourself, and a copy of it in a safe place: what your exams ask
follows from `secret.txt`. Whoever has it can print their keys; without it, the exams
can't be written again.

    python -m teaching exam --bank {folder} --notebooks 00 01 --version 1 -o exam

Items of your own go into `.toml` and `.md` files in this folder. Their format is in
docs/teaching/exams.md of the workbook.
"""


def make_bank(folder: Path) -> None:
    """Make a folder that only this user can read, with a new secret.

    Raises BadArgument for a folder in the workbook, which learners get, and for one
    that has a secret already.
    """
    if folder.resolve().is_relative_to(ROOT.resolve()):
        raise BadArgument(
            f"Expected a folder outside of the workbook, got {folder}: learners get a"
            " copy of the workbook. Choose one that only you can read, such as"
            " ~/exam-bank."
        )
    if (folder / SECRET).exists():
        raise BadArgument(
            f"{folder} has a secret already, and exams were perhaps drawn with it."
            " Choose another folder."
        )
    with writing(folder):
        make_private(folder)
        path = folder / SECRET
        path.touch(mode=0o600)
        path.write_text(f"{secrets.token_hex(32)}\n", encoding="ascii")
        readme = _README.format(folder=folder)
        (folder / "README.md").write_text(readme, encoding="utf-8")
