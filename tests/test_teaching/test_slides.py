"""Lectures: slides whose cells exist, that fit on a screen, and a page that is made of
them.
"""

import re

import pytest

from labkit.core.errors import LabError
from labkit.lesson import notebook_files
from teaching import __main__ as command, docs, path as paths, slides
from tests.selection import sampled

pytestmark = pytest.mark.slow  # makes whole lectures

PNG = "iVBORw0KGgo="


def picture(alt="A <bar> chart."):
    return {
        "data": {"image/png": PNG},
        "metadata": {"image/png": {"alt": alt, "width": 600, "height": 200}},
    }


def cell(kind, source="", outputs=()):
    return {"cell_type": kind, "source": source, "outputs": list(outputs)}


def test_each_lecture_of_the_semester_has_its_slides_about_its_notebook():
    weeks = [row for row in docs.rows_of("semester.csv") if row["notebook"]]
    assert sorted(row["lecture"] for row in weeks) == slides.names()
    for row in weeks:
        assert slides.lecture(row["lecture"])[0].notebook == row["notebook"]


def test_a_slide_has_one_short_idea_and_cells_that_are_in_the_notebooks():
    for name in slides.names():
        lecture = slides.lecture(name)
        assert 10 <= len(lecture) <= 20, name
        assert len({slide.title for slide in lecture}) == len(lecture), name
        assert lecture[0].title.endswith("?")
        assert not lecture[0].figure
        assert not lecture[-1].figure, "it ends on a question"
        for slide in lecture:
            (path,) = paths.chosen([slide.notebook])
            cells = notebook_files.read(path)["cells"]
            kinds = {cell["id"]: cell["cell_type"] for cell in cells}
            assert len(slide.title) <= 45
            assert len(slide.line.split()) <= 20
            assert not slide.figure or kinds[slide.figure] == "code"
            assert slide.notes
            assert all(kinds[note] == "markdown" for note in slide.notes.split())


def test_a_slide_shows_pictures_and_keeps_the_text_for_the_speaker():
    ran = {
        "04": {
            "fig": cell("code", outputs=[{"text": "12"}, picture(), picture("two")]),
            "read": cell("m", "**Read it.**"),
        }
    }
    shown, notes = slides.cells_of(
        slides.Slide("Why?", "A line.", "04", "fig", "read"), ran
    )
    assert shown["source"].startswith("## Why?\n\nA line.\n\n<figure><img ")
    assert shown["source"].count("<img ") == 2
    assert 'alt="A &lt;bar&gt; chart." width="600" height="200"' in shown["source"]
    assert "notebook 04 on this machine" in shown["source"]
    assert notes["source"] == "**Read it.**"
    assert [one["metadata"]["slideshow"]["slide_type"] for one in (shown, notes)] == [
        "slide",
        "notes",
    ]
    with pytest.raises(LabError, match="Cell fig of notebook 04 drew nothing"):
        slides.cells_of(
            slides.Slide("Why?", "", "04", "fig", ""), {"04": {"fig": cell("code")}}
        )


@pytest.fixture
def without_running(monkeypatch):
    """Every figure is one small picture; no notebook runs."""

    def executed(number, figures):
        (path,) = paths.chosen([number])
        return {
            one["id"]: one | {"outputs": [picture()]}
            for one in notebook_files.read(path)["cells"]
        }

    monkeypatch.setattr(slides, "executed", executed)


@pytest.mark.parametrize("name", sampled(slides.names(), 3))
def test_a_lecture_is_one_page_with_notes(name, without_running, tmp_path, capsys):
    assert command.main(["slides", name, "-o", str(tmp_path)]) == 0
    made = slides.lecture(name)
    page = (tmp_path / f"{name}.slides.html").read_text(encoding="utf-8")
    assert f"{len(made)} slides" in capsys.readouterr().out
    assert page.count('<aside class="notes">') == len(made)
    assert len(re.findall(r"<img [^>]*alt=", page)) == sum(
        bool(slide.figure) for slide in made
    )
    assert set(re.findall(r'(?:src|href)="(https?://[^"/]+)', page)) - {
        "https://docs.nvidia.com"
    } >= {"https://unpkg.com"}
    for needless in ("require.min.js", "jquery", "mermaid.esm"):
        assert needless not in page


def test_with_a_copy_of_reveal_the_page_loads_nothing_from_elsewhere(
    without_running, tmp_path, capsys
):
    reveal = tmp_path / "package"
    for part in ("dist/reveal.js", "dist/theme/white.css", "plugin/notes/notes.js"):
        (reveal / part).parent.mkdir(parents=True, exist_ok=True)
        (reveal / part).write_text("", encoding="utf-8")
    out = tmp_path / "slides"
    assert (
        command.main(["slides", "kernels", "-o", str(out), "--reveal", str(reveal)])
        == 0
    )
    page = (out / "kernels.slides.html").read_text(encoding="utf-8")
    loaded = re.findall(
        r'<(?:script|link|img)[^>]* (?:src|href)="(?!data:)([^"]+)', page
    )
    assert loaded
    assert all(
        (out / name).is_file() for name in loaded if not name.endswith("reveal.css")
    )
    assert not [name for name in loaded if name.startswith("http")]
    assert (
        command.main(["slides", "kernels", "-o", str(out), "--reveal", str(tmp_path)])
        == 1
    )
    assert "npm pack reveal.js@4" in capsys.readouterr().err


@pytest.mark.complete
def test_a_notebook_runs_as_far_as_the_last_figure():
    ran = slides.executed("03", ["nb03-07", ""])
    assert slides.pictures(ran["nb03-07"]["outputs"])
    assert ran["nb03-08"]["source"]  # text below it is there for the notes
    # stored, not run
    assert not ran["nb03-10"].get("outputs") or "block_of" in str(
        ran["nb03-10"]["outputs"]
    )
