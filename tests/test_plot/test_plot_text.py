"""Figures and pages show every text as it is: no formula, no HTML, no Markdown."""

import html
import warnings

import numpy as np
import pytest
from matplotlib.text import Text

from labkit import plot
from labkit.core.display import LITERAL, Note, Table, as_html
from labkit.core.text import printable
from labkit.lesson.boards import Curves, SpeedBoard
from labkit.lesson.checks import Outcome
from labkit.measure.bench import Ratio, Timing
from labkit.plot.picture import sentence_data
from ranks import Span

pytestmark = pytest.mark.slow  # draws figures

TEXTS = {
    "TeX": r"$\frac$ and $x^2$ for US$ 3",
    "underscore": "_first_",
    "Markdown": "*a* **b** `c` [x](javascript:1) # d",
    "HTML": "<b>bold</b> <script>1</script> &amp;",
    "lines": "one\ntwo\r\n\tthree",
    "no glyph": "\U0001f9ff 漢字 עברית",
}


def drawn_texts(ax):
    """What a figure shows once it is drawn; formulas fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plot.to_png(ax).startswith(b"\x89PNG")
    texts = [text for text in ax.figure.findobj(Text) if text.get_text()]
    assert not [text.get_text() for text in texts if text.get_parse_math()]
    return [text.get_text() for text in texts]


FIGURES = {
    "speed_bars": lambda text: plot.speed_bars(
        [plot.Bar(text, measured=1.0)], unit="s"
    ),
    "curves": lambda text: plot.curves({text: [1.0, 2.0]}, x=text, y=text),
    "scales": lambda text: plot.scales({text: {1: 2.0, 8: 3.0}}, x=text, y=text),
    "ratios": lambda text: plot.ratios({text: Ratio(text, text, 2.0, 1.8, 2.2)}),
    "readings": lambda text: plot.readings([Timing(text, 1.0, (0.1, 0.2, 0.3))]),
    "gantt": lambda text: plot.gantt([Span(0, 0.0, 1.0, text, text)]),
    "gray_images": lambda text: plot.gray_images({text: np.eye(4)}),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_draws_every_text_as_it_is(figure):
    for text in TEXTS.values():
        shown = drawn_texts(FIGURES[figure](text).ax)
        first_line = printable(text, 160).split("\n")[0]
        assert first_line in "\n".join(shown)


def test_half_a_letter_is_drawn_and_shown():
    half = "a\udc80b"
    axes = plot.new_axes()
    axes.set_title(half)
    assert r"a\udc80b" in drawn_texts(axes)
    assert repr(Note(half)).encode()
    assert Note(half)._repr_html_().encode()
    assert sentence_data(half)["text/plain"].encode()


def test_a_logarithmic_axis_has_numbers_and_no_formulas():
    few = plot.readings([Timing("a", 1.0, (0.1, 0.2, 0.3))])
    assert "100 ms" in drawn_texts(few.ax)


HTML = {
    "note": lambda text: Note(text)._repr_html_(),
    "outcome": lambda text: Outcome("00.1", "not yet", text)._repr_html_(),
    "table": lambda text: Table(((text,),), (text,), text, (text,))._repr_html_(),
    "sentence": lambda text: sentence_data(text)["text/html"],
}


@pytest.mark.parametrize("made", HTML)
def test_a_page_shows_every_text_as_it_is(made):
    for kind, text in TEXTS.items():
        page = HTML[made](text)
        if kind == "Markdown":  # of which code alone is shown as such
            page = page.replace("<code>", "`").replace("</code>", "`")
        # Without the class MathJax would look for formulas.
        assert f"class='{LITERAL}'" in page.replace('"', "'")
        assert as_html(text).replace("\n", "<br>") in page.replace("\n", "<br>")
        assert "<script" not in page
        assert printable(text) in html.unescape(page.replace("<br>", "\n"))


@pytest.mark.parametrize("kind", ["TeX", "HTML"])
def test_boards_draw_every_text_as_it_is(kind, home):
    text = TEXTS[kind]
    board = SpeedBoard("00.1", text)
    board.absent(text, text)
    curves = Curves(text, x=text, y=text)
    curves.add(**{text: 1.0})
    curves.finish()
    for live in (board, curves):
        drawn_texts(live._axes)
        assert "<script" not in live._caption.value
