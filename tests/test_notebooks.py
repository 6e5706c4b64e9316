"""How a notebook is made: canonical, open to a beginner, in the rhythm that the design
asks for.
"""

import ast
import itertools
import json
import os
import re
import statistics
import sys
from datetime import datetime

import pytest

from labkit.core import results
from labkit.core.paths import RECORDED
from labkit.lesson import guesses, outline
from labkit.lesson.claims import claims
from labkit.lesson.notebook_files import PUZZLES
from scripts import notebooks as script
from tests.helpers import cells, code_cells, notebook_paths

every_notebook = pytest.mark.parametrize(
    "path", notebook_paths(), ids=lambda path: path.stem
)
WORDS = re.compile(
    r"\b(simply|obviously|as (we|you) can see|blazing|powerful)\b|\bjust\b",
    re.IGNORECASE,
)


def markdown(path):
    return [source for kind, source, _, _ in cells(path) if kind == "markdown"]


def lines_of(source):
    return [line for line in source.splitlines() if line.strip()]


def python_of(source):
    """A cell without its shell lines."""
    return re.sub(r"(?m)^(\s*)[!%].*$", r"\1pass", source)


@every_notebook
def test_it_is_canonical(path):
    text = path.read_text(encoding="utf-8")
    assert script.canonical(json.loads(text), path.name) == text, "make fix repairs it"


@every_notebook
def test_the_setup_cell_is_short_and_comes_from_the_script(path):
    (setup,) = [source for _, source, tags, _ in cells(path) if "setup" in tags]
    assert setup == script.SETUP
    assert len(lines_of(setup)) <= 2


ADDRESS = "https://github.com/someone/workbook"


@every_notebook
def test_without_an_address_nothing_points_anywhere_and_with_one_everything_does(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    without = script.canonical(notebook, path.name, "")
    assert "Colab" not in without.replace('"colab": {', "")
    assert "mybinder" not in without
    with_one = script.canonical(notebook, path.name, ADDRESS)
    made = json.loads(with_one)["cells"]
    assert script.links(f"notebooks/{path.name}", ADDRESS) in "".join(made[0]["source"])
    (colab,) = [cell for cell in made if "colab" in cell["metadata"].get("tags", [])]
    assert f"{ADDRESS} /content/workbook" in "".join(colab["source"])
    assert "setup" in made[made.index(colab) + 1]["metadata"]["tags"]
    assert script.canonical(json.loads(with_one), path.name, ADDRESS) == with_one
    assert script.canonical(json.loads(with_one), path.name, "") == without


@pytest.mark.parametrize(
    ("host", "mounted", "home"),
    [
        (
            "COLAB_RELEASE_TAG",
            "/content/drive/MyDrive",
            "/content/drive/MyDrive/labkit",
        ),
        ("COLAB_RELEASE_TAG", "", None),
        ("KAGGLE_KERNEL_RUN_TYPE", "/kaggle/working", "/kaggle/working/labkit"),
        ("SOMEWHERE_ELSE", "/kaggle/working", None),
    ],
)
def test_the_first_cell_fetches_the_workbook_on_colab_and_kaggle_alone(
    monkeypatch, host, mounted, home
):
    cell = script.COLAB.format(address=ADDRESS, version=script.version())
    ran = []
    monkeypatch.setattr(os, "environ", {host: "1"})
    monkeypatch.setattr(os.path, "isdir", mounted.__eq__)
    monkeypatch.setattr(sys, "path", [])
    code = re.sub(
        r"(?m)^( *)!(.*)$", lambda found: f"{found[1]}ran.append({found[2]!r})", cell
    )
    exec(code, {"ran": ran})
    assert os.environ.get("LABKIT_HOME") == home
    assert len(ran) == 2 * len(sys.path) == 2 * (host != "SOMEWHERE_ELSE")


def test_the_address_is_set_once_and_can_be_set_again(tmp_path, monkeypatch):
    copy = tmp_path / "pyproject.toml"
    copy.write_text(script.PYPROJECT.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(script, "PYPROJECT", copy)
    for url in (ADDRESS, "https://github.com/else/where"):
        script.set_address(url)
        assert script.address() == url
        assert "Open in Colab" in script.readme("<!-- links --><!-- /links -->", url)
    # as GitHub offers it
    for copied in (
        f"{ADDRESS}.git",
        f"{ADDRESS}/",
        "git@github.com:someone/workbook.git",
    ):
        script.set_address(copied)
        assert script.address() == ADDRESS
    for bad in (
        "",
        "github.com/someone/workbook",
        "https://example.org/a/b",
        "https://github.com/someone",
    ):
        with pytest.raises(ValueError, match="Expected an address like https"):
            script.set_address(bad)


@every_notebook
def test_it_opens_with_a_question_and_acts_within_five_cells(path):
    title, *rest = lines_of(markdown(path)[0])
    assert re.fullmatch(rf"# {path.name[:2]} .+\?", title)
    assert "minutes" in " ".join(rest)
    made = ("*You are here:*", "[Open in Colab]")
    assert len([line for line in rest if not line.startswith(made)]) == 2
    kinds = [
        kind for kind, _, tags, _ in cells(path) if not {"setup", "colab"} & set(tags)
    ]
    assert "code" in kinds[:5]


@every_notebook
def test_its_sections_are_questions_in_order(path):
    headings = [
        line
        for source in markdown(path)
        for line in source.splitlines()
        if line.startswith("## ")
    ]
    numbered = [heading for heading in headings if re.match(r"## \d", heading)]
    needed = sum(not heading.endswith(" (optional)") for heading in numbered)
    if path.name[:2] not in PUZZLES:  # a page of puzzles has a section for each
        assert 4 <= needed <= 7
    for number, heading in enumerate(numbered, start=1):
        assert re.fullmatch(rf"## {number} .+\?( \(optional\))?", heading)


@every_notebook
def test_it_is_done_in_ninety_minutes(path):
    needed = [source for _, source, tags, _ in cells(path) if "more" not in tags]
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert len(needed) <= 100
    assert sum(source.count("lab.predict(") for source in needed) <= 8
    if path.name[:2] not in PUZZLES:  # done one by one, for as long as one likes
        assert script.minutes(notebook, path.name[:2]) <= 90


TAKES = re.compile(r"\b(minutes?|(?:\d+|ten|twenty|thirty|some) seconds)\b")


@every_notebook
def test_what_takes_long_says_so_in_its_section(path):
    """A cell takes long that took more than 20 s on each machine that recorded it, from
    entry to entry.
    """
    section = ""
    text = {}
    for kind, source, _, _ in cells(path):
        if heading := re.match(r"## (\d+) ", source):
            section = heading[1]
        if kind == "markdown":
            text[section] = text.get(section, "") + source
    in_each_run = []
    for run in RECORDED.glob("*.jsonl"):
        entries = [e for e in results.read(run)[0] if e.section[:2] == path.name[:2]]
        entries.sort(key=lambda entry: entry.when)
        long = set()
        for last, entry in itertools.pairwise(entries):
            took = datetime.fromisoformat(entry.when) - datetime.fromisoformat(
                last.when
            )
            if took.total_seconds() > 20:
                long.add(entry.section[3:])
        if entries:
            in_each_run.append(long)
    long_everywhere = set.intersection(*in_each_run) if in_each_run else set()
    unsaid = [name for name in long_everywhere if not TAKES.search(text.get(name, ""))]
    assert not unsaid, "these sections have a cell of more than 20 seconds"


def test_the_run_that_counts_in_its_minutes_is_recorded():
    """Without one, the run of a notebook would count as nothing. The page of puzzles
    has no such count.
    """
    recorded = {
        entry.section[:2]
        for path in RECORDED.glob("*.jsonl")
        for entry in results.read(path)[0]
    }
    assert recorded >= {path.name[:2] for path in notebook_paths()} - PUZZLES


@every_notebook
def test_an_optional_part_has_a_heading_and_ends_at_the_next_one(path):
    """JupyterLab folds all below a heading up to the next of its level
    or a higher one.
    """
    level = 0  # of the optional part's heading; 0 outside of one
    for kind, source, tags, _ in cells(path):
        heading = re.match(r"(#+) ", source) if kind == "markdown" else None
        if "more" not in tags:
            assert not level or (heading and len(heading[1]) <= level), source
            level = 0
        elif not level:
            assert heading, source
            assert source.splitlines()[0].endswith(" (optional)"), source
            level = len(heading[1])


@every_notebook
def test_at_most_four_parts_are_optional(path):
    headings = [source.splitlines()[0] for source in markdown(path)]
    assert sum(heading.endswith(" (optional)") for heading in headings) <= 4


@every_notebook
def test_its_cells_are_short(path):
    sizes = [len(lines_of(source)) for source in code_cells(path)]
    stubs = [
        len(lines_of(source))
        for source in code_cells(path)
        if re.match(r"# \d\d\.\d\d?", source)
    ]
    assert statistics.median(sizes) <= 3
    assert sorted(sizes)[int(0.9 * (len(sizes) - 1))] <= 10
    assert max(size for size in sizes if size not in stubs or size <= 20) <= 20
    assert max(stubs) <= 30
    for source in markdown(path):
        assert len(re.findall(r"\w+", source)) <= 120 or source.startswith("# "), source


@every_notebook
def test_no_line_of_code_needs_scrolling(path):
    for kind, source, tags, _ in cells(path):
        if kind == "code" and "colab" not in tags:  # that cell has the long address
            assert max(map(len, source.splitlines())) <= 96, source


@every_notebook
def test_at_most_two_code_cells_follow_each_other(path):
    run = 0
    for kind, source, _, _ in cells(path):
        run = run + 1 if kind == "code" else 0
        assert run <= 2, source


@every_notebook
def test_it_imports_labkit_and_its_own_folder_and_nothing_from_inside_labkit(path):
    own = f"exercises.nb{path.name[:2]}"
    for source in code_cells(path):
        for node in ast.walk(ast.parse(python_of(source))):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            inside = [
                n
                for n in names
                if n.startswith("labkit.")
                or (n.split(".")[0] == "exercises" and own not in n)
            ]
            assert not inside, source
            assert not (isinstance(node, ast.ImportFrom) and node.module == "labkit"), (
                source
            )


@every_notebook
def test_the_prose_promises_nothing(path):
    for source in markdown(path):
        assert not WORDS.search(source), source


@every_notebook
def test_every_device_measurement_waits_for_the_device(path):
    """A call that times work on `machine.device` must be given something that waits for
    it.
    """
    for source in code_cells(path):
        for node in ast.walk(ast.parse(python_of(source))):
            name = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
            if name in ("time_call", "compare", "time") and "device" in ast.unparse(
                node
            ):
                assert "sync" in {keyword.arg for keyword in node.keywords}, (
                    ast.unparse(node)
                )


@every_notebook
def test_it_closes_with_predictions_beside_measurements_and_a_question(path):
    assert f'lab.summary("{path.name[:2]}")' in code_cells(path)[-1]
    assert "**Open question:**" in markdown(path)[-1]
    if path.name[:2] not in PUZZLES:  # par stands in place of a guess
        assert sum(source.count("lab.predict(") for source in code_cells(path)) >= 3


@every_notebook
def test_its_keys_carry_its_own_sections_and_its_claims_exist(path):
    text = "\n".join(code_cells(path))
    used = re.findall(
        r'lab\.(?:predict|record|check|hint|solution|SpeedBoard)\(\s*"(\d\d)\.', text
    )
    assert set(used) == {path.name[:2]}
    assert set(re.findall(r'"(C\d\d)"', text)) <= set(claims())


HOLE = "\0"  # what an f-string fills in


def text_of(node):
    """The text of a string or an f-string of a notebook, with holes; empty for other
    nodes.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return (
        "".join(text_of(part) or HOLE for part in node.values)
        if isinstance(node, ast.JoinedStr)
        else ""
    )


def agree(a, b):
    """Whether two texts with holes can be the same."""
    patterns = [
        (".+".join(map(re.escape, one.split(HOLE))), other.replace(HOLE, "x"))
        for one, other in ((a, b), (b, a))
    ]
    return any(re.fullmatch(pattern, text) for pattern, text in patterns)


def unanswered(sources, within=14):
    """The predictions, of cells in their order, whose number isn't taken under their
    key in the next cells.

    It is where the key stands there, or where a board of the section stands there and
    its row somewhere.
    """
    trees = [ast.parse(python_of(source)) for source in sources]
    missing = []
    texts = [{text_of(node) for node in ast.walk(tree)} - {"", HOLE} for tree in trees]
    for i, tree in enumerate(trees):
        for call in (
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Call) and ast.unparse(n.func) == "lab.predict"
        ):
            section, _, what = text_of(call.args[0]).partition(" ")
            below = slice(i + 1, i + within)
            keys = [
                text
                for each in texts[below]
                for text in each
                if text.startswith(f"{section} ")
            ]
            board = any(
                f"lab.SpeedBoard('{section}'" in ast.unparse(later)
                for later in trees[below]
            )
            rows = [text for each in texts for text in each] if board else []
            if not any(agree(f"{section} {what}", key) for key in keys) and not any(
                agree(what, row) for row in rows
            ):
                missing.append(f"{section} {what}")
    return missing


OF_A_WHOLE_NOTEBOOK = {"17.6 minutes lost"}  # guesses that its last section answers


@every_notebook
def test_every_guess_is_answered_under_its_key_a_few_cells_later(path):
    sources = ["" if kind == "markdown" else source for kind, source, *_ in cells(path)]
    assert set(unanswered(sources)) <= OF_A_WHOLE_NOTEBOOK
    assert unanswered(sources, within=100) == []


@pytest.mark.parametrize(
    ("below", "answered"),
    [
        (['lab.record("00.3 all threads", 3.0, "x")'], True),
        (
            ['board = lab.SpeedBoard("00.3", "t")', 'board.time("all threads", step)'],
            True,
        ),
        (['lab.record(f"00.3 {name}", 3.0, "x")'], True),
        (['lab.record("00.3 one thread", 3.0, "x")'], False),
        (['lab.SpeedBoard("00.2", "t").time("all threads", step)'], False),
        (["pass"] * 20 + ['lab.record("00.3 all threads", 3.0, "x")'], False),
        ([], False),
    ],
)
def test_a_guess_without_an_answer_is_found(below, answered):
    assert (
        unanswered(['lab.predict("00.3 all threads", ..., "x")', *below]) == []
    ) == answered


# a time, a rate or an amount of memory depends on how much work was done; a ratio, a
# share and a count need not
DEPENDS_ON_SIZE = re.compile(r"s|ms|µs|h|B|bytes|[KMG]i?B|.+/s")


def keywords_of(call, tree):
    """The keywords of a call, those of `**task` too, where the notebook says task =
    {"size": ...}.
    """
    given = {keyword.arg for keyword in call.keywords}
    for name in (
        k.value.id
        for k in call.keywords
        if k.arg is None and isinstance(k.value, ast.Name)
    ):
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        for node in [node for node in assigned if name in ast.unparse(node.targets[0])]:
            keys = [
                key
                for part in ast.walk(node.value)
                if isinstance(part, ast.Dict)
                for key in part.keys
            ]
            given |= {key.value for key in keys if isinstance(key, ast.Constant)}
    return given


def without_size(source):
    """The calls whose numbers could stand beside recorded ones and that don't say size
    and number format.
    """
    tree = ast.parse(source)
    bare = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        given = keywords_of(call, tree)
        if name == "lab.record":
            origin = next((k.value for k in call.keywords if k.arg == "origin"), None)
            unit = call.args[2].value
            if ast.unparse(
                origin or call
            ) == "'calculated'" or not DEPENDS_ON_SIZE.fullmatch(unit):
                continue
        elif name != "lab.SpeedBoard":
            continue
        if not {"size", "dtype"} <= given:
            bare.append(ast.unparse(call))
    return bare


@every_notebook
def test_what_is_measured_says_its_size_and_number_format(path):
    bare = without_size("\n".join(map(python_of, code_cells(path))))
    assert not bare, (
        "size= and dtype= say what makes a number comparable with a recorded one"
    )


@pytest.mark.parametrize(
    ("call", "bare"),
    [
        ('lab.SpeedBoard("00.2", "x", unit="images/s")', 1),
        ('lab.SpeedBoard("00.2", "x", size="batch 64")', 1),
        ('lab.SpeedBoard("00.2", "x", size="batch 64", dtype="float32")', 0),
        (
            (
                'task = {"size": "batch 64", "dtype":'
                ' "float32"}\nlab.SpeedBoard("00.2", "x", **task)'
            ),
            0,
        ),
        ('task = {"size": "batch 64"}\nlab.SpeedBoard("00.2", "x", **task)', 1),
        ('lab.record("00.2 x", 1.0, "B/s")', 1),
        ('lab.record("00.2 x", 1.0, "MiB", origin="simulated")', 1),
        ('lab.record("00.2 x", 1.0, "MiB", origin="calculated")', 0),
        ('lab.record("00.2 x", 1.0, "%")', 0),
    ],
)
def test_a_missing_size_is_found(call, bare):
    assert len(without_size(call)) == bare


TIMED = {"median_s", "median", "rate"}


def without_interval(source):
    """Records of a ratio without its interval: a Ratio's value, or two timings divided,
    in the call or in a name.
    """
    tree = ast.parse(python_of(source))
    made = {}
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
        for name in (
            part.id
            for target in node.targets
            for part in ast.walk(target)
            if isinstance(part, ast.Name)
        ):
            made[name] = node.value

    def attributes(value):
        inner = [
            made.get(part.id, part) if isinstance(part, ast.Name) else part
            for part in ast.walk(value)
        ]
        return {
            part.attr
            for one in inner
            for part in ast.walk(one)
            if isinstance(part, ast.Attribute)
        }

    bare = []
    for call in (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and len(node.args) > 1
    ):
        if ast.unparse(call.func) not in ("lab.record", "keep"):
            continue
        value = call.args[1]
        unit = ast.unparse(call.args[2]) if len(call.args) > 2 else "'x'"
        value = made.get(value.id, value) if isinstance(value, ast.Name) else value
        # solved and ...
        value = value.values[-1] if isinstance(value, ast.BoolOp) else value
        divided = (
            unit == "'x'"
            and isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.Div)
        )
        of_timings = divided and all(
            TIMED & attributes(side) for side in (value.left, value.right)
        )
        if of_timings or (unit in ("'x'", "'%'") and "value" in attributes(value)):
            bare.append(ast.unparse(call))
    return bare


@every_notebook
def test_a_ratio_is_recorded_with_its_interval(path):
    bare = [each for source in code_cells(path) for each in without_interval(source)]
    assert bare == [], (
        "pass the Ratio itself, as compare and speedup return it: its interval belongs"
        " to it"
    )


@pytest.mark.parametrize(
    ("source", "bare"),
    [
        ('lab.record("00.2 x", race.ratio("b"), "x")', 0),
        ('lab.record("00.2 x", race.ratio("b").value, "x")', 1),
        ('busy = 100 * race.ratio("b").value\nlab.record("00.2 x", busy, "%")', 1),
        ('lab.record("00.2 x", a.median_s / b.median_s, "x")', 1),
        (
            (
                'gain = solved and a.median_s / b.median_s\nsolved and lab.record("00.2'
                ' x", gain, "x")'
            ),
            1,
        ),
        ('a, b = (runs[n].median for n in (1, 2))\nkeep("00.2 x", a / b)', 1),
        ('lab.record("00.2 x", read.rate(256) / wrote.rate(1), "x")', 1),
        # one side was calculated
        ('lab.record("00.2 x", timing.median_s / floor_s, "x")', 0),
    ],
)
def test_a_ratio_without_its_interval_is_found(source, bare):
    assert len(without_interval(source)) == bare


@every_notebook
def test_every_guess_has_a_bound(path):
    """`lab.predict` sends back what is more than its `most`, or than
    its unit allows.
    """
    for source in code_cells(path):
        for node in ast.walk(ast.parse(python_of(source))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.predict":
                bounded = "most" in {keyword.arg for keyword in node.keywords}
                assert bounded or node.args[2].value in guesses._MOST, ast.unparse(node)


def test_what_an_answer_gives_is_shown_without_a_todo_of_its_own():
    """`solved and use(answer)`: an Outcome that isn't passed shows what is open."""
    own = re.compile(r"""[=!]= "passed"|["']todo[:"' ]""")
    found = {
        path.name[:2]: own.findall("\n".join(code_cells(path)))
        for path in notebook_paths()
    }
    assert not {name for name, words in found.items() if words}


@every_notebook
def test_a_cell_whose_output_is_compared_has_one_stored(path):
    for _, source, tags, cell in cells(path):
        if "nbval-check-output" in tags:
            assert "keep_output" in tags, source
            assert cell["outputs"], source
            assert cell["execution_count"] is not None, source


def test_some_cells_are_compared():
    compared = [
        tags
        for path in notebook_paths()
        for _, _, tags, _ in cells(path)
        if "nbval-check-output" in tags
    ]
    assert compared


def test_every_notebook_is_in_the_readme_once_with_its_milestone():
    readme = (script.ROOT / "README.md").read_text(encoding="utf-8")
    made = readme.partition("<!-- milestones -->")[2].partition("<!-- /milestones")[0]
    assert made.strip() == script.milestones().strip()
    for path in notebook_paths():
        assert made.count(f"(notebooks/{path.name})") == 1, path.name
    parts = outline.milestones()
    assert len(parts) == 5
    numbers = [notebook.number for part in parts for notebook in part.notebooks]
    assert len(set(numbers)) == len(numbers)


@every_notebook
def test_its_first_and_last_cell_say_where_the_reader_is_and_what_comes_next(path):
    number = path.name[:2]
    around = outline.neighbors(number)
    for source in (markdown(path)[0], markdown(path)[-1]):
        assert source.endswith(script.way(number))
    for before, after in around.values():
        for notebook in filter(None, (before, after)):
            assert f"]({notebook.file})" in script.way(number)
            assert (path.parent / notebook.file).exists()
