"""What the book makes of docstrings, of the glossary and of links;
tests/browser/test_book.py builds and opens it.
"""

import collections
import contextlib
import dataclasses
import json
import re
import types

import nbformat
import pytest

from labkit.core import results
from labkit.core.errors import MissingExtra
from labkit.core.results import Measurement
from labkit.lesson import notebook_files
from tests.needs import needs

pytestmark = needs("docutils", "sphinx")
with contextlib.suppress(ImportError):
    from book import (
        docstrings,
        pages,
        printing,
        recorded,
        reference,
        run,
        site,
    )
    from book.try_here import recording
    from scripts import glossary


def test_a_docstring_is_read_as_sentences_with_code():
    text = "all of `Timing`s, 2 * x and trailing_ in [a paper](https://example.org/a_b)"
    rst = (
        r"all of ``Timing``\ s, 2 \* x and trailing\_ in `a paper"
        r" <https://example.org/a_b>`__"
    )
    assert docstrings.rst(text) == rst


def test_an_example_in_a_docstring_stays_as_it_is_typed():
    text = "One_\n\n    >>> a = b.memory_bytes * 2  # `c`\n    1_000\n\nof `d`s * 2"
    assert docstrings.rst(text) == (
        "One\\_\n\n    >>> a = b.memory_bytes * 2  # `c`\n    1_000\n\n"
        "of ``d``\\ s \\* 2"
    )


def test_each_word_of_the_glossary_has_one_entry_and_a_notebook_that_uses_it():
    entries = glossary.glossary()
    assert len(entries) == glossary.GLOSSARY.read_text(encoding="utf-8").count("\n- ")
    for number in (path.name[:2] for path in notebook_files.paths()):
        forms = [
            form.lower()
            for word in glossary.of_page(f"notebooks/{number}")
            for form in (word.term, *word.also)
        ]
        assert sorted(forms) == sorted(set(forms)), number
    assert len({word.anchor for word in entries}) == len(entries)
    assert [word.term for word in entries] == sorted(
        (word.term for word in entries), key=str.lower
    )
    names = {path.name for path in notebook_files.paths()}
    assert all(
        word.meaning.rsplit("notebooks/", 1)[1].removesuffix(").") in names
        for word in entries
    )


def test_a_word_has_the_meaning_of_its_notebook_and_every_spelling():
    words = {word.term: word for word in glossary.glossary()}
    assert "13" not in words["block"].only  # there a block is a transformer's
    assert {"all", "reduce", "allreduce", "all_reduce"} <= words["all-reduce"].spellings
    assert [
        w.term for w in glossary.of_page("notebooks/04") if "diverge" in w.also
    ] == ["divergence"]
    assert [
        w.term for w in glossary.of_page("notebooks/11") if "diverge" in w.also
    ] == ["diverging loss"]


# Bold for emphasis, or the name of one row of a list: everyday words, which need no
# entry.
EMPHASIS = {
    "calculate",
    "calculated",
    "cap",
    "data",
    "deeper",
    "device for each rank",
    "measured here",
    "naive",
    "pipeline",
    "published",
    "recorded on",
    "scale",
    "simulated",
    "strided",
    "tensor",
    "two levels",
    "wider",
}
# Names of companies, models, files and units.
NAMES = {
    "AMD",
    "BERT",
    "FINN",
    "GB",
    "GB200",
    "GB300",
    "GPT",
    "GShard",
    "JPEG",
    "JPEGs",
    "MB",
    "MHz",
    "RTX",
    "SimpleCNN",
    "TB",
    "US",
    "ZB",
    "ECP5",
    "NVIDIA",
    "OpenCV",
    "float4",
}


def prose():
    """(number, text without code and addresses) of each cell of text of
    the notebooks.
    """
    for path in notebook_files.paths():
        for cell in notebook_files.read(path)["cells"]:
            if cell["cell_type"] == "markdown":
                yield (
                    path.name[:2],
                    re.sub(r"`[^`]*`|(?<=\])\([^)]*\)", "", "".join(cell["source"])),
                )


def unexplained(found):
    """Those of the pairs (number, word) that the glossary does not explain in that
    notebook.
    """
    known = {
        n: {
            f.lower()
            for w in glossary.of_page(f"notebooks/{n}")
            for f in (w.term, *w.also)
        }
        for n, _ in found
    }
    return sorted(
        {(n, word) for n, word in found if word.lower().strip("[]") not in known[n]}
    )


def test_every_word_in_bold_has_an_entry():
    bold = [
        (n, word)
        for n, text in prose()
        for word in re.findall(r"\*\*([^*\n]+)\*\*", text)
    ]
    labels = re.compile(r".*[.?:]|Predict.*|Exercise .*|Change one thing")
    words_in_bold = [
        one
        for one in bold
        if not labels.fullmatch(one[1]) and one[1].lower() not in EMPHASIS
    ]
    assert not unexplained(words_in_bold), (
        "write what it means into docs/glossary.md, or into EMPHASIS if it is an"
        " everyday word"
    )
    assert unexplained([("00", "thread"), ("00", "warp drive")]) == [
        ("00", "warp drive")
    ]


def test_every_abbreviation_that_is_used_twice_has_an_entry():
    short = re.compile(
        r"(?<![\w-])(?:[A-Za-z]*[A-Z][A-Z][A-Za-z0-9]*|b?float\d+|int\d+)(?!\w)"
    )
    used = collections.Counter(
        one for _, text in prose() for one in set(short.findall(text))
    )
    known = {form for word in glossary.glossary() for form in (word.term, *word.also)}
    assert not sorted(
        one for one, cells in used.items() if cells > 1 and one not in known | NAMES
    )


def test_a_link_to_what_is_no_page_becomes_text_or_leads_to_the_public_address(
    monkeypatch,
):
    monkeypatch.setattr(pages, "address", lambda: "")
    for link, mended in {
        "[00](notebooks/00_start_here.ipynb)": "[00](../notebooks/00_start_here.ipynb)",
        "[LICENSE](LICENSE)": "`LICENSE`",
        "[the map](labkit/core)": "the map (`labkit/core`)",
        "[a paper](https://example.org)": "[a paper](https://example.org)",
    }.items():
        assert pages._relinked(link, "README.md", "about/README.md") == mended
    monkeypatch.setattr(pages, "address", lambda: "https://github.com/owner/name")
    public = pages._relinked(
        "[LICENSE](../LICENSE)", "labkit/README.md", "labkit/README.md"
    )
    assert public == "[LICENSE](https://github.com/owner/name/blob/main/LICENSE)"


def test_what_a_widget_leaves_in_the_book_is_the_picture_beside_it():
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}}

    def output(data):
        return nbformat.v4.new_output("display_data", data)

    outputs = [
        output(
            {
                "text/html": "<figure></figure>",
                "image/png": "",
                "text/plain": "<SpeedBoard>",
            }
        ),
        output(view | {"text/html": "", "text/plain": "<SpeedBoard>"}),
        output(view | {"text/plain": "FloatText()"}),
        output(view | {"text/html": "a guess", "text/plain": "a guess"}),
        nbformat.v4.new_output("stream", text="printed"),
    ]
    shown = list(run._shown(outputs))
    assert [o.get("data", {}).get("text/html") for o in shown] == [
        "<figure></figure>",
        "a guess",
        None,
    ]
    assert "widget" not in json.dumps(shown)


@pytest.mark.slow
def test_a_notebook_runs_again_when_what_it_stands_on_changes(tmp_path, monkeypatch):
    path = notebook_files.paths()[0]
    key = run._key(path)
    assert run._key(path) == key
    monkeypatch.setenv("LABKIT_PROFILE", "smoke")
    assert run._key(path) != key
    changed = tmp_path / path.name
    changed.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    monkeypatch.setenv("LABKIT_PROFILE", "ci")
    assert run._key(changed) != key


@pytest.mark.slow
def test_every_page_of_the_reference_has_what_notebooks_use():
    code = "\n".join(
        "".join(c["source"])
        for p in notebook_files.paths()
        for c in notebook_files.read(p)["cells"]
    )
    for name, text in reference.pages():
        there = set(
            re.findall(
                r"(?m)^\.\. (?:autoclass|autofunction|py:data|py:function):: (\w+)",
                text,
            )
        )
        assert there or name == "index", name
        used = set(re.findall(rf"\blab\.{name}\.(\w+)", code))
        assert used <= there, name


def test_a_disturbed_run_is_counted_and_said_in_words():
    def ran(*texts):
        return {"cells": [{"outputs": [{"text": text}]} for text in texts]}

    own = "this machine was busy: 12 % of the time waiting for a core"
    recorded = "Recorded on M, not shown: its machine was busy."
    assert (
        run.disturbed(ran(own, "fine", recorded, f"The times are in doubt: {own}."))
        == 2
    )
    told = {"machine": "M", "profile": "ci", "day": "2026-01-01", "seconds": 9}
    assert "Other programs" not in pages._about(told | {"disturbed": 0})
    assert (
        "Other programs took time from 2 of its cells, in a second run as well"
        in pages._about(told | {"disturbed": 2})
    )
    assert "was not run" in pages._about(None)


@pytest.mark.slow
def test_a_disturbed_notebook_is_run_once_more_and_the_calmer_run_is_kept(
    tmp_path, monkeypatch
):
    path = notebook_files.paths()[0]
    counts = [3, 1]

    def ran(*_):
        output = nbformat.v4.new_output("stream", text="machine was busy")
        cells = [
            nbformat.v4.new_code_cell(outputs=[output]) for _ in range(counts.pop(0))
        ]
        return nbformat.v4.new_notebook(cells=cells)

    monkeypatch.setattr(run, "_ran", ran)
    monkeypatch.setattr(run, "_key", lambda _: "")
    assert "disturbed" in run._run(path, tmp_path)
    assert counts == []
    kept = json.loads((tmp_path / path.name).read_text(encoding="utf-8"))
    assert kept["metadata"]["book"]["disturbed"] == 1
    counts[:] = [0, 5]
    assert "disturbed" not in run._run(path, tmp_path)
    assert counts == [5]


def test_recorded_machines_stand_side_by_side(tmp_path):
    key = {
        "section": "00.2",
        "what": "one thread",
        "unit": "images/s",
        "size": "batch 64",
    }
    both = key | {"origin": "measured", "when": ""}
    runs = [
        Measurement(**both, machine="A", value=100.0),
        Measurement(**both, machine="B", value=200.0, busy="this machine was busy"),
        Measurement(**both | {"size": "batch 8"}, machine="B", value=50.0),
        Measurement(
            **both | {"what": "other", "profile": "ci"}, machine="B", value=1.0
        ),
    ]
    for one in "AB":
        lines = [results.to_line(run) for run in runs if run.machine == one]
        (tmp_path / f"{one}.jsonl").write_text(
            "\n".join(lines) + "\n", encoding="utf-8"
        )
    rows = [
        line
        for line in recorded.page(tmp_path).splitlines()
        if line.startswith("| 00.2")
    ]
    assert rows == [
        "| 00.2 | one thread | batch 64 | 100 images/s | 200 images/s (machine busy) |",
        "| 00.2 | one thread | batch 8 |  | 50 images/s |",
    ]


def test_a_site_map_is_there_once_the_workbook_has_an_address(tmp_path):
    assert (
        site.base_url("https://github.com/Owner/name")
        == "https://owner.github.io/name/"
    )
    assert site.base_url("") == ""
    found = types.SimpleNamespace(found_docs={"index", "notebooks/00_start_here"})
    app = types.SimpleNamespace(
        outdir=tmp_path, env=found, config=types.SimpleNamespace(html_baseurl="")
    )
    site._map(app, None)
    assert not list(tmp_path.iterdir())
    app.config.html_baseurl = "https://owner.github.io/name/"
    site._map(app, None)
    text = (tmp_path / "sitemap.xml").read_text(encoding="utf-8")
    assert (
        "<loc>https://owner.github.io/name/notebooks/00_start_here.html</loc>" in text
    )


def test_a_pdf_without_chromium_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(printing.shutil, "which", lambda _: None)
    with pytest.raises(MissingExtra, match="make programs"):
        printing.pdfs(tmp_path, print)


@pytest.mark.slow
def test_every_moment_of_a_recorded_kernel_leads_on_to_its_end():
    shared, apart, whole = map(recording.recorded, recording.visitors())
    ends = [
        {
            moment["memory"][name][0][-1]
            for moment in kernel["moments"].values()
            if not moment["next"]
        }
        for kernel, name in (
            (shared, "counter"),
            (apart, "counters"),
            (whole, "counter"),
        )
    ]
    assert ends == [{"1", "2"}, {"1"}, {"2"}]  # an addition is lost in some orders
    assert any(
        "'s 1 is lost" in moment["said"] for moment in shared["moments"].values()
    )
    for kernel in (shared, apart, whole):
        moments = kernel["moments"]
        for key, moment in moments.items():
            ready = [str(n) for n, waits in enumerate(moment["waits"]) if not waits]
            assert {key + n for n in ready} <= set(moments)
            assert moment["next"] in (ready or [""])


@pytest.mark.slow
def test_a_recorded_puzzle_ends_as_its_picture_says():
    for launch in recording.puzzles():
        moments = recording.recorded(launch)["moments"]
        *_, (written, after) = recording.SKETCHES[launch.title].arrays.items()
        last = moments[max(moments, key=len)]
        assert "-8" not in json.dumps(
            moments
        )  # of shared memory that nobody has written
        assert last["memory"][written] == [[f"{number:g}" for number in after]], (
            launch.title
        )
        assert not any(
            "outside of an array" in moment["said"] for moment in moments.values()
        )


def test_a_kernel_with_too_many_orders_is_refused():
    (shared, *_) = recording.visitors()
    many = dataclasses.replace(shared, threads=6)
    with pytest.raises(ValueError, match="at most 100 moments"):
        recording.recorded(many)
