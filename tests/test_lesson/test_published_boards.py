"""What others published, on the boards of the notebooks: every row has a source, its
place, and no say in a verdict.
"""

import ast
import csv
import functools
import itertools
import json
import re

import pytest

from labkit.core import results
from labkit.core.errors import BadArgument, LabError
from labkit.core.paths import DATA, EXERCISES, NOTEBOOKS
from labkit.lesson import guesses, journal
from labkit.lesson.boards import SpeedBoard
from labkit.measure import published
from labkit.plot import ratios as plot_ratios
from tests.selection import sampled

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]  # draws boards
with (DATA / "published/boards.csv").open(newline="", encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))
SAME = [row for row in ROWS if row["relation"] == "same"]
OTHERS = [row for row in ROWS if row["relation"] != "same"]


# What stands in a folder of exercises beside the notebook's own boards.
OF_EXERCISES = ("check.py", "solution.py", "wrong_answers.py")


@functools.cache
def sources_of(notebook):
    """The code of a notebook, "04", and of the modules that show its boards."""
    (path,) = NOTEBOOKS.glob(f"{notebook}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    modules = sorted((EXERCISES / f"nb{notebook}").glob("*.py"))
    own = [module for module in modules if module.name not in OF_EXERCISES]
    return ["\n".join(code), *(module.read_text(encoding="utf-8") for module in own)]


def source_of(notebook):
    """All of it, as one text."""
    return "\n".join(sources_of(notebook))


def absent_on_a_gpu(notebook):
    """(section, row, whether a value is calculated) of each row that needs a GPU; the
    row is None where it varies.
    """
    cells, *modules = map(ast.parse, sources_of(notebook))
    yield from absent_in(cells)
    for module in modules:
        for definition in module.body:
            yield from absent_in(definition)


def absent_in(code):
    section = None  # of the board that this code made last
    calls = (node for node in ast.walk(code) if isinstance(node, ast.Call))
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        name = ast.unparse(call.func)
        given = {each.arg: each.value for each in call.keywords}
        if name.endswith("SpeedBoard"):
            section = getattr(call.args[0], "value", None)
        elif name.endswith(".absent") and section:
            needs = ast.unparse(given["needs"] if "needs" in given else call.args[1])
            if "a CUDA GPU" in needs or "hardware" in needs or "NEEDS" in needs:
                row = (
                    call.args[0].value
                    if isinstance(call.args[0], ast.Constant)
                    else None
                )
                yield section, row, "calculated" in given


def board_of(row, **changes):
    """The board of a row's section, with that row absent."""
    section, name = results.split_key(row["key"])
    same = row["relation"] == "same"
    work = {
        "unit": row["unit"] if same else "s",
        "size": row["size"],
        "dtype": row["dtype"],
    } | changes
    board = SpeedBoard(section, "A board", **work)
    board.absent(name, needs="a CUDA GPU")
    return board


def test_a_row_says_who_measured_what_on_which_device_and_where_it_stands():
    for row in ROWS:
        assert row["relation"] in ("same", "ratio", "related")
        assert row["link"].startswith("https://")
        assert row["confidence"] == "read from source text"
        assert all(row[column] for column in ("what", "unit", "size", "who", "device"))
        assert float(row["value"]) > 0
        assert row["relation"] != "ratio" or row["unit"] == "x"


def test_a_row_has_a_place_in_its_notebook():
    for row in ROWS:
        section, name = results.split_key(row["key"])
        source = source_of(section[:2])
        if row["relation"] == "ratio":
            assert f'published.ratios("{section}")' in source, row["key"]
            continue
        pattern = re.sub(r"\d+", r"(?:\\d+|\\{[^{}]*\\})", re.escape(name))
        assert re.search(pattern, source), f"no row {name!r}"
        boards = re.findall(
            rf'(?:SpeedBoard|time_on_gpu)\(\s*"{section}".*?\)\n', source, re.DOTALL
        )
        units = {
            unit[1] if (unit := re.search(r'unit="([^"]+)"', board)) else "s"
            for board in boards
        }
        assert units, f"no board of section {section}"
        if row["relation"] == "same":
            assert row["unit"] in units
            assert all(
                number.replace(",", "") in source
                for number in re.findall(r"[\d,]+", row["size"])
            )


def name_of(row):
    return f"{row['key']}, {row['what']}"


@pytest.mark.parametrize("row", sampled(SAME, 4) + sampled(OTHERS, 4), ids=name_of)
def test_a_row_appears_with_its_link(row):
    if row["relation"] == "ratio":
        section, _ = results.split_key(row["key"])
        picture = plot_ratios(published.ratios(section), title="Ratios")
        assert f"{row['what']}: " in picture.sentence
        assert (
            f"published: {row['who']}, {row['device']} ({row['link']})"
            in picture.sentence
        )
        return
    board = board_of(row)
    (bar,) = board._bars.values()
    label = f"published: {row['who']}, {row['device']}", float(row["value"])
    assert (label in bar.others) == (row["relation"] == "same")
    begin = "Published: " if row["relation"] == "same" else "Related, published: "
    assert re.search(
        rf"{begin}[^()]*{re.escape(row['what'])} [^()]*\({re.escape(row['who'])}",
        board.sentence,
    )
    assert row["link"] in board.sentence


@pytest.mark.parametrize("row", sampled(SAME, 2), ids=name_of)
def test_a_row_is_no_bar_where_its_work_is_another(row):
    for change, words in (
        ({"size": "other"}, f"{row['size']}, here other"),
        ({"dtype": "int8"}, f"{row['dtype']}, here int8"),
        ({"unit": "apples"}, f"in {row['unit']}, here in apples"),
    ):
        board = board_of(row, **change)
        (bar,) = board._bars.values()
        assert not [label for label, _ in bar.others if "published" in label]
        assert (
            f"Published: {row['who']}, {row['device']}, not shown: {words}."
            in board.sentence
        )


def test_names_of_ratios_fit_beside_their_figure_and_none_hides_another():
    for section in {row["key"][:4] for row in ROWS if row["relation"] == "ratio"}:
        names = [
            row["what"]
            for row in ROWS
            if row["key"].startswith(section) and row["relation"] == "ratio"
        ]
        assert max(map(len, names)) <= 34
        assert list(published.ratios(section)) == names


def test_without_a_gpu_a_row_that_needs_one_has_a_number_of_one():
    keys = [results.split_key(row["key"]) for row in ROWS]
    for notebook in sorted(path.name[:2] for path in NOTEBOOKS.glob("[0-9]*.ipynb")):
        for section, row, calculated in absent_on_a_gpu(notebook):
            cited = [
                what for there, what in keys if there == section and row in (None, what)
            ]
            name = f"{section} {row or '(several)'}"
            assert calculated or cited or published_ratios(section), name


def published_ratios(section):
    return f'published.ratios("{section}")' in source_of(
        section[:2]
    ) and published.ratios(section)


def gains(table, column, names, lower, **where):
    """The gain of each named rung over the row before it, by name; only between rates
    of the same.
    """
    rows = [row for row in published.table(table) if where.items() <= row.items()]
    found = {}
    for before, row in itertools.pairwise(rows):
        same = before.get("rate_of") == row.get("rate_of")
        if same and row["rung"] in names:
            gain = float(row[column]) / float(before[column])
            found[row["rung"]] = 1 / gain if lower else gain
    return found


# What a notebook calls a rung that a ladder names after its own optimizer or compiler.
SAME_RUNG = {
    "fused optimizer": {"fused Adam", "fused AdamW"},
    "compiled": {"torch.compile"},
}
LADDERS = {
    "gpt2_ladder": ("tokens_per_s",),
    "image_ladders": ("images_per_s", "seconds"),
}


def published_rungs():
    """The rung of a published ladder by the figures that its gain is made of."""
    rungs = {}
    for table, columns in LADDERS.items():
        for before, row in itertools.pairwise(published.table(table)):
            for column in columns:
                if before[column] and row[column]:
                    pair = frozenset((before[column], row[column]))
                    rungs[pair] = row["rung"]
    return rungs


def compared_with_another(rows):
    """(notebook's rung, published rung) of the ratios that stand under another name."""
    rungs = published_rungs()
    for row in rows:
        rung = rungs.get(frozenset(row["printed"].split(" / ")))
        _, name = results.split_key(row["key"])
        if rung and rung != name and rung not in SAME_RUNG.get(name, ()):
            yield name, rung


def test_no_rung_of_a_published_ladder_stands_under_another_rungs_name():
    assert [*compared_with_another(ROWS)] == []
    rungs = published_rungs()
    pairs = [frozenset(row["printed"].split(" / ")) for row in ROWS]
    assert sum(pair in rungs for pair in pairs) >= 20
    (row,) = (row for row in ROWS if row["key"] == "19.2 weights in bfloat16")
    moved = row | {"key": "19.2 bfloat16"}  # autocast here, pure 16 bits there
    assert [*compared_with_another([moved])] == [("bfloat16", "weights in bfloat16")]


def by_who(section, who):
    """The values of the published ratios of a section that come from somebody, in the
    table's order.
    """
    return [
        one.value for one in published.ratios(section).values() if who in one.machine
    ]


class Any:
    def __contains__(self, name):
        return True


@pytest.mark.parametrize(
    ("section", "who", "table", "column", "where"),
    [
        ("16.2", "airbench", "image_ladders", "seconds", {"ladder": "airbench"}),
        ("16.3", "NERSC", "image_ladders", "images_per_s", {"ladder": "NERSC"}),
        ("16.3", "rasbt", "gpt2_ladder", "tokens_per_s", {}),
    ],
)
def test_each_rung_of_a_ladder_beside_that_of_images_follows_from_its_table(
    section, who, table, column, where
):
    found = gains(table, column, Any(), column == "seconds", **where)
    assert list(found.values()) == pytest.approx(by_who(section, who), rel=1e-3)


def test_a_published_value_is_never_recorded_and_judges_nothing():
    for row in SAME[:3]:
        board_of(row)
    assert results.results().entries() == []
    number = next(iter(published.ratios("09.6").values()))
    with pytest.raises(LabError, match="Expected evidence to be"):
        journal.verdict("C15", number, section="09.6")
    with pytest.raises(BadArgument, match="Expected origin to be"):
        journal.record("09.6 a ratio", 2.0, "x", origin="published")
    assert "not measured" in str(
        journal.verdict("C15", None, section="09.6", needs="a CUDA GPU")
    )
    assert guesses.latest(results.results().entries(), "09.6 a ratio") is None


def test_the_numbers_of_one_source_and_work_are_one_sentence():
    (sentence,) = published.citations(
        one for one in published.cited("04.5") if one.relation == "related"
    )
    assert sentence.startswith("Related, published: neighbors first 8.05 ms, ")
    assert (
        "several numbers a thread 268 µs (Harris 2007, GeForce 8800 GTX; 4,194,304"
        " numbers; int32; " in sentence
    )


def test_a_calculated_value_stands_in_a_row_that_cannot_be_measured():
    board = SpeedBoard("00.4", "On a GPU", unit="images/s")
    board.absent("no such row", needs="a CUDA GPU", calculated={"H200, at most": 5e6})
    assert board._bars["no such row"].others == [("calculated: H200, at most", 5e6)]
    assert (
        "needs a CUDA GPU, 5,000,000 images/s (calculated: H200, at most)"
        in board.sentence
    )
    assert results.results().entries() == []
