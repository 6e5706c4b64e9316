"""The exams' templates and what is drawn from them: complete, right to the last digit,
in no deck, of no help to somebody who knows nothing, and another thing in each bank.
"""

import ast
import collections
import functools
import math
import random
import re
import stat
import textwrap

import numpy as np
import pytest

from exercises import bank as cards
from exercises.misconceptions import misconceptions
from exercises.nb05.streams import timetable
from labkit.core.errors import BadArgument, DataError
from labkit.core.paths import ROOT
from labkit.lesson import exercise_files, notebook_files
from teaching import anki, exam, exam_bank
from teaching.__main__ import main
from teaching.arithmetic import filled_in, value
from tests.helpers import notebook_paths
from tests.test_teaching import guessers

pytestmark = pytest.mark.slow  # draws thousands of items

TEMPLATES = exam_bank.public_templates()
MOST_BY_GUESSING = 0.30  # where chance is 0.25
DRAWS = 200  # of each template, whose options are held
GUESSED = 16  # of each template, for the guessers


def draws(template, count):
    return [template.instance(random.Random(f"draw {i}")) for i in range(count)]


@functools.cache
def guessed():
    return [item for template in TEMPLATES for item in draws(template, GUESSED)]


def test_two_templates_of_each_kind_for_each_notebook():
    names = [template.item.name for template in TEMPLATES]
    assert len(set(names)) == len(names) >= 100
    counts = collections.Counter(
        (template.item.notebook, template.item.kind) for template in TEMPLATES
    )
    numbers = {path.name[:2] for path in notebook_paths()}
    notebooks = numbers - notebook_files.PUZZLES  # puzzles ask for code alone
    assert counts == {
        (notebook, kind): 2 for notebook in notebooks for kind in exam_bank.KINDS
    }


def test_each_template_gives_different_items():
    kinds = collections.defaultdict(list)
    for template in TEMPLATES:
        shown = {item.shown() for item in draws(template, 30)}
        kinds[template.item.kind].append(len(shown))
    assert min(kinds["calculate"]) >= 20
    assert min(kinds["explain"]) >= 2
    assert set(kinds["judge"]) == {2}


def test_an_item_says_why_each_of_four_options_is_right_or_wrong():
    believed = misconceptions()
    exercises = exercise_files.numbers()
    for item in guessed():
        texts, whys, _ = zip(*item.options, strict=True)
        assert len(set(texts)) == 4, item.name
        assert len(set(whys)) == 4, (item.name, whys)
        assert all(why.endswith(".") and len(why.split()) >= 3 for why in whys), (
            item.name
        )
        assert item.misconception in believed, item.name
        assert item.exercise in exercises, item.name
        assert item.exercise[:2] == item.notebook, item.name
        assert re.fullmatch(r"nb\d\d-[a-z0-9]+(-[a-z0-9]+)*", item.name)
        needs_the_notebook = r"exercise|notebook|this section|cell above|see above"
        assert not re.search(needs_the_notebook, item.task.lower()), item.name
        assert not re.search(r"[{}|]", item.task), item.task
        assert item.points > 0, item.name
        if item.code and not item.code.startswith("float "):  # C++
            ast.parse(item.code)


@pytest.mark.parametrize(
    "template",
    [each for each in TEMPLATES if each.item.kind == "calculate"],
    ids=lambda template: template.item.name,
)
def test_the_right_option_alone_follows_from_the_stated_arithmetic(template):
    for item in draws(template, DRAWS):
        shown = []
        for text, _, arithmetic in item.options:
            digits = re.match(r"-?[\d,]+(\.\d+)?", text)
            step = 10 ** -len(digits[1][1:]) if digits[1] else 1
            calculated = value(arithmetic, item.values)
            assert abs(calculated - guessers.number(text)) <= step / 2 * (1 + 1e-6)
            shown.append(guessers.number(text))
        assert shown.count(shown[0]) == 1, item.options
        assert len(set(shown)) == 4, item.options
        if item.name in ORACLES:
            counted = by_counting(item.name, tuple(item.values.items()))
            right = value(item.options[0][2], item.values)
            assert math.isclose(counted, right, rel_tol=1e-9), item


@functools.cache
def by_counting(name, values):
    return ORACLES[name](**dict(values))


def counted_threads(n, block):
    return next(threads for threads in range(0, 10**6, block) if threads >= n) - n


def grid_stride(blocks, threads, n, block, lane, **_):
    return len(range(block * threads + lane, n, blocks * threads))


def sectors(stride, size, **_):
    return len({stride * lane * size // 32 for lane in range(32)})


def passes(row):
    banks = collections.Counter(lane * row % 32 for lane in range(32))
    return max(banks.values())


def occupancy(registers, block, **_):
    blocks = 0
    while (blocks + 1) * block * registers <= 65536 and (blocks + 1) * block <= 2048:
        blocks += 1
    return 100 * blocks * block / 2048


def last_kernel(chunks, copy, kernel):
    events = timetable(2, chunks=chunks, copy_s=copy, kernel_s=kernel)
    return max(event.end_s for event in events)


def break_even(first, second, small, large, **_):
    slope, overhead = np.polyfit([small, large], [first, second], 1)
    return overhead / slope


def busy(a, b, c, d):
    runs = [(0, a), (b, c), (d, d + 2)]
    return sum(any(x <= t < y for x, y in runs) for t in range(20)) * 5


def images_of_a_restart(workers, ahead, batch, done):
    # as torch's DataLoader does: it fills the queues, then hands out one for each taken
    handed_out = workers * ahead
    for _ in range(done):
        handed_out += 1
    return (handed_out - done) * batch


def float16(bits, rest, **_):
    word = int(f"1{bits}{rest}", 2)
    return float(np.array([word], np.uint16).view(np.float16)[0])


def counting(step, stored, **_):
    total = np.float32(0)
    while True:
        mantissa, exponent = np.frexp(total + step)
        scale = 2.0 ** (stored + 1)
        rounded = np.round(mantissa * scale) / scale * 2.0**exponent  # to even
        if rounded == total:
            return float(total)
        total = np.float32(rounded)


def two_stages(a, b, c, d, e, f, batches, **_):
    layers = [a, b, c, d, e, f]
    ends = []
    for cut in range(1, 6):
        first = second = 0  # when each stage is done
        for _batch in range(batches):
            first += sum(layers[:cut])
            second = max(first, second) + sum(layers[cut:])
        ends.append(second)
    return min(ends)


def bubble(batches, stages):
    free = [0] * stages
    ready = [0] * batches
    for stage in range(stages):
        for batch in range(batches):
            ready[batch] = free[stage] = max(ready[batch], free[stage]) + 1
    return 100 * (1 - batches / max(free))


def ring(ranks, size):
    # each part travels ranks - 1 hops, twice
    return sum(size / ranks for _ in range(2) for _ in range(ranks - 1))


def save_interval(save, hours, gpus):
    between = hours * 3600 / gpus
    intervals = np.geomspace(10, 1e6, 20_001)
    lost = save / intervals + intervals / 2 / between
    best = intervals[lost.argmin()] / 60
    exact = math.sqrt(2 * save * between) / 60
    assert math.isclose(best, exact, rel_tol=1e-3)
    return exact


def masked(row):
    block = 1
    while block < row:
        block *= 2
    return block - row


def cache(layers, kv, dim, block, tokens, **_):
    blocks = len(range(0, tokens, block))
    kept = np.zeros((2, layers, kv, 1, dim), np.float16)  # of one token
    return kept.nbytes * blocks * block / 1e6


def brier(sure, wrongly, right, wrong, **_):
    said = np.array([sure] * right + [wrongly] * wrong)
    was = np.array([1] * right + [0] * wrong)
    return ((said - was) ** 2).mean()


def overflow(size, step, factor):
    hundreds = np.log(float(np.finfo(np.float16).max) / size) / np.log(factor)
    return step + 100 * hundreds


def flattened(channels, rows, columns, channel, row, column):
    places = np.arange(rows * columns * channels).reshape(rows, columns, channels)
    return int(places[row, column, channel])


def clocks(rows, length):
    return len({row + place for row in range(rows) for place in range(length)})


def useful(outputs):
    columns = next(c for c in range(128, 10**4, 128) if c >= outputs)
    return 100 * outputs / columns


ORACLES = {
    "nb03-threads-past-the-end": counted_threads,
    "nb03-grid-stride": grid_stride,
    "nb04-stride-of-two": sectors,
    "nb04-padded-tile": passes,
    "nb05-threads-by-registers": occupancy,
    "nb05-copies-beside-kernels": last_kernel,
    "nb07-busy-with-overlap": busy,
    "nb07-break-even-batch": break_even,
    "nb08-images-of-a-restart": images_of_a_restart,
    "nb09-decode-float16": float16,
    "nb09-where-counting-stops": counting,
    "nb12-bytes-of-a-ring": ring,
    "nb14-bubble-of-gpipe": bubble,
    "nb14-forward-through-two-stages": two_stages,
    "nb15-interval-between-saves": save_interval,
    "nb18-masked-lanes": masked,
    "nb17-score-of-being-sure": brier,
    "nb17-step-of-an-overflow": overflow,
    "nb19-cache-of-a-sequence": cache,
    "nb20-place-after-flatten": flattened,
    "nb21-one-output-too-many": useful,
    "nb22-clocks-until-the-last": clocks,
}


def test_true_and_not_true_are_equally_often_right_and_wrong():
    judged = [item for item in guessed() if item.kind == "judge"]
    heads = [[text.split(":")[0] for text, _, _ in item.options] for item in judged]
    assert all(
        collections.Counter(head) == {"True": 2, "Not true": 2} for head in heads
    )
    # each template has both verdicts, so no words of its own go with one of them
    verdicts = collections.defaultdict(set)
    for item, head in zip(judged, heads, strict=True):
        verdicts[item.name].add(head[0])
    assert all(each == {"True", "Not true"} for each in verdicts.values())


def as_questions(chosen):
    return [
        (f"{item.task} {item.code}", [text for text, _, _ in item.options], 0)
        for item in chosen
    ]


def held_out(make_guess, chosen):
    """The share right of a guesser that has learned from other notebooks' items."""
    right = 0.0
    for notebook in {item.notebook for item in chosen}:
        others = as_questions(item for item in chosen if item.notebook != notebook)
        own = as_questions(item for item in chosen if item.notebook == notebook)
        right += guessers.share_right(make_guess(others), own) * len(own)
    return right / len(chosen)


@pytest.mark.parametrize("kind", exam_bank.KINDS)
def test_rules_without_the_subject_find_few_right_options(kind):
    chosen = [item for item in guessed() if item.kind == kind]
    questions = as_questions(chosen)
    shares = {
        rule: guessers.share_right(guess, questions)
        for rule, guess in guessers.RULES.items()
    }
    shares["words of other notebooks"] = held_out(guessers.frequencies, chosen)
    if kind == "judge":
        shares["words of statements"] = held_out(guessers.verdicts, chosen)
    assert {n: s for n, s in shares.items() if s > MOST_BY_GUESSING} == {}


def test_a_guesser_finds_what_gives_itself_away():
    rules = guessers.RULES
    planted = {
        "rank 3": ["1", "2", "9", "4"],
        "hedging": ["always", "never", "mostly", "only"],
        "longest": ["ab", "cd", "efghij", "k"],
        "odd length": ["ab", "cd", "efghij", "k"],
        "negations": ["it is", "it was", "it isn't", "it has"],
        "hub": ["7", "30", "10", "20"],
        "in the task": ["it is 7", "it is 8", "it is 3", "it is 5"],
        "overlap": ["bytes", "cores", "seconds between", "clocks"],
        "reached": ["17", "23", "12", "19"],
    }
    for rule, options in planted.items():
        task = "Of 3 and 4 seconds, which lie between?"
        assert guessers.share_right(rules[rule], [(task, options, 2)]) == 1, rule
    shown_often = [
        ("", ["it overflows", f"a{i}", f"b{i}", f"c{i}"], 0) for i in range(9)
    ]
    counting = guessers.frequencies(shown_often[1:])
    assert guessers.share_right(counting, shown_often[:1]) == 1
    may_be_true = [
        (f"It may x{i}.", ["True: a", "Not true: b", "True: c", "Not true: d"], 0)
        for i in range(9)
    ]
    by_words = guessers.verdicts(may_be_true[1:])
    assert guessers.share_right(by_words, may_be_true[:1]) == 1 / 2


def test_no_deck_and_no_card_shows_an_item():
    shown = "".join(question + answer for _, question, answer, _ in anki.notes())
    shown += "".join(
        str(card) for notebook in cards.notebooks() for card in cards.cards(notebook)
    )
    assert [item.name for item in guessed() if item.task in shown] == []


# -- arithmetic of other people's files


def test_arithmetic_reaches_numbers_and_nothing_else():
    names = {"n": 10_240, "rate": 1.5, "kind": "float16"}
    assert value("ceil(n / 1000) * 2 if kind == 'float16' else -1", names) == 22
    assert filled_in("{n} at {rate * 2:.1f}, {n:d}, {{x}}", names) == (
        "10,240 at 3.0, 10240, {x}"
    )
    # whole numbers look alike, however they were calculated
    assert filled_in("{n:,}, {n / 4:,}, {n / 4}", names) == "10,240, 2,560, 2,560"
    for bad in (
        "__import__('os')", "n.__class__", "9**9**9", "1e29 * 1e29", "'a' * 9",
        "lambda: 1", "[1]", "f'{n}'", "open('x')", "n <", "log(0)", "missing",
        "-" * 5000 + "1",
    ):  # fmt: skip
        with pytest.raises(BadArgument):
            value(bad, names)
    with pytest.raises(BadArgument, match="format"):
        filled_in("{n:1000000000}", names)


# -- private banks


@pytest.fixture
def private(tmp_path):
    folder = tmp_path / "bank"
    assert main(["items", "new", str(folder)]) == 0
    return folder


def test_a_private_bank_is_the_teachers_alone(private, capsys):
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert stat.S_IMODE((private / exam_bank.SECRET).stat().st_mode) == 0o600
    assert len(exam_bank.read_bank(private).secret) == 32
    assert main(["items", "new", str(private)]) == 1
    assert "has a secret already" in capsys.readouterr().err
    assert main(["items", "new", str(ROOT / "bank")]) == 1
    assert "outside of the workbook" in capsys.readouterr().err
    assert main(["items", "new"]) == 1
    with pytest.raises(DataError, match="items new"):
        exam_bank.read_bank(private.parent)


def shown(form):
    return [question.item.shown() for question in form]


def test_two_secrets_and_two_versions_draw_different_exams():
    banks = [exam_bank.Bank(TEMPLATES, secret) for secret in (b"one", b"another", b"")]
    exams = {
        (i, version): exam.forms(["01", "05", "12"], 9, version, bank)
        for i, bank in enumerate(banks)
        for version in (2026, 2027)
    }
    for key, (first, second) in exams.items():
        assert [q.item.name for q in first] == [q.item.name for q in second]
        assert not set(shown(first)) & set(shown(second)), key
    # the next year asks from the other templates
    for i in range(len(banks)):
        this, following = (
            {question.item.name for question in exams[i, version][0]}
            for version in (2026, 2027)
        )
        assert not this & following
    # whoever prints the practice of these years has none of the numbers
    known = {text for version in (2026, 2027) for text in shown(exams[2, version][0])}
    numbers = [q.item for q in exams[0, 2026][0] if q.item.kind == "calculate"]
    assert not {item.shown() for item in numbers} & known


TOML = """
[[item]]
notebook = "05"
name = "of-my-own"
kind = "calculate"
task = "What is {a} times {b}?"
draw = {a = {from = 2, to = 40}, b = [11, 13, 17]}
where = ["a != b"]
options = [
  ["{answer}", "It is the product.", "a * b"],
  ["{answer}", "This is the sum.", "a + b"],
  ["{answer}", "This is the difference.", "a - b"],
  ["{answer}", "This is one of them.", "b"],
]
"""
MARKDOWN = """# Items of last year's class

## fixed-one (05, explain, 3 points)

What does this line
leave in `x`?

```python
x = 1
```

- [ ] Nothing
  x has a value.
- [x] One
  It is assigned.
- [ ] Two
  Nobody adds to it.
- [ ] A tensor
  It is an int.

## fixed-two (05, explain)

And this one?

- [x] Two
  It is assigned.
- [ ] One
  It isn't.
- [ ] Three
  It isn't, either.
- [ ] Four
  Nor this.
"""


def test_own_items_in_toml_and_markdown_join_the_public_ones(private):
    (private / "mine.toml").write_text(TOML)
    (private / "more.md").write_text(MARKDOWN)
    bank = exam_bank.read_bank(private)
    names = {template.item.name for template in bank.templates}
    assert {"nb05-of-my-own", "nb05-fixed-one", "nb05-fixed-two"} <= names
    (fixed,) = (t for t in bank.templates if t.item.name == "nb05-fixed-one")
    item = fixed.instance(random.Random(0))
    assert item.options[0][:2] == ("One", "It is assigned.")
    assert (item.code, item.points) == ("x = 1", 3)
    assert item.task == "What does this line leave in `x`?"
    # two that don't vary are a question of form A and one of form B
    first, second = exam.forms(["05"], 8, 1, bank)
    pairs = {(a.item.name, b.item.name) for a, b in zip(first, second, strict=True)}
    different = [pair for pair in pairs if pair[0] != pair[1]]
    assert different in (
        [("nb05-fixed-one", "nb05-fixed-two")],
        [("nb05-fixed-two", "nb05-fixed-one")],
    )


def test_the_guides_examples_can_be_read(private):
    guide = (ROOT / "docs" / "teaching" / "exams.md").read_text("utf-8")
    blocks = re.findall(r"(?m)(?:^(?: {4}.*)?\n)+", guide)
    blocks = [textwrap.dedent(block).strip() for block in blocks]
    (markdown,) = (block for block in blocks if block.startswith("## "))
    (toml,) = (block for block in blocks if block.startswith("[[item]]"))
    (private / "guide.md").write_text(markdown)
    (private / "guide.toml").write_text(toml)
    names = {t.item.name for t in exam_bank.read_bank(private).templates}
    assert {"nb08-cached-decoding", "nb12-bytes-of-a-gather"} <= names


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", TOML.replace("a * b", "a * open"), "open"),
        ("a.toml", TOML.replace("notebook", "notebok"), "unknown: .*'notebok'"),
        ("a.toml", TOML.replace('["a != b"]', '["a > 99"]'), "none whose conditions"),
        ("a.toml", TOML.replace("b = [11, 13, 17]", "b = []"), "list of values"),
        ("a.toml", TOML.replace("of-my-own", "Of my own"), "small letters"),
        ("a.toml", TOML.replace('"calculate"', '"judge"'), "Not true:"),
        ("a.toml", "item = 3", "tables that begin with"),
        ("a.toml", "[[item", "can't be read"),
        ("a.md", MARKDOWN.replace("(05, explain)", "(5)"), "line 21: .*notebook, kind"),
        ("a.md", MARKDOWN.replace("- [x] One", "- [ ] One"), "line 3: .*one option"),
        ("a.md", MARKDOWN.replace("  It isn't.\n", "It isn't.\n"), "indented"),
        ("a.md", "nothing", "found none"),
        ("a.toml", TOML.replace("of-my-own", "double-constants"), "stand twice"),
    ],
)
def test_own_items_that_cant_be_read_are_refused_with_the_mend(
    private, name, text, words
):
    (private / name).write_text(text)
    with pytest.raises(DataError, match=words) as refused:
        exam_bank.read_bank(private)
    assert str(private) in str(refused.value)
