"""Whatever a text holds, figures draw it and pages show it as it is: no formula, no HTML, no Markdown."""

import html
import itertools
import re
import warnings

import pytest
from matplotlib.text import Text

from labkit import plot
from labkit.core.display import LITERAL, Note, Table, as_html, plain
from labkit.lesson.boards import Curves, SpeedBoard
from labkit.lesson.checks import Outcome
from labkit.lesson.explorer import Explorer
from labkit.plot.picture import Picture, sentence_data
from tests.good_figures import figures
from tests.notebook_modules import drawings
from tests.selection import sampled

pytestmark = pytest.mark.slow  # draws every figure

NASTY = {
    "TeX": r"$\frac$ and $x^2$ for US$ 3",
    "underscore": "_first_",
    "Markdown": "*a* **b** `c` [x](javascript:1) # d",
    "HTML": "<b>bold</b> <script>1</script> &amp;",
    "lines": "one\ntwo\r\n\tthree",
    "unseen": "a\u200bb\u202ec\u2066d\ufeff",
    "control": "a\0b\x1b[31m",
    "no glyph": "\U0001f9ff 漢字 עברית",
    "long": "wide " * 2000,
    "lines without end": "\n" * 10_000 + "x",
}
FIGURES = drawings()


def drawn_texts(ax):
    """What a figure shows once it is drawn; formulas fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plot.to_png(ax).startswith(b"\x89PNG")
    texts = [text for text in ax.figure.findobj(Text) if text.get_text()]
    assert not [text.get_text() for text in texts if text.get_parse_math()]
    return [text.get_text() for text in texts]


def test_every_figure_function_has_arguments_to_test_it_with():
    assert set(FIGURES) <= set(figures())


SHORT = " ".join(
    NASTY[kind] for kind in ("underscore", "TeX", "Markdown", "HTML", "lines", "unseen", "control", "no glyph")
)
TEXTS = {"nasty": SHORT, "long": NASTY["long"], "lines": NASTY["lines without end"]}


@pytest.fixture(scope="module")
def nasty_figures():
    return {kind: figures(text) for kind, text in TEXTS.items()}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*itertools.product(FIGURES, ["nasty"]), *sampled(list(itertools.product(FIGURES, ["long", "lines"])), 16)],
)
def test_a_figure_draws_every_text_as_it_is(name, kind, nasty_figures):
    text = TEXTS[kind]
    picture = FIGURES[name](**nasty_figures[kind][name], title=f"Of {text}")
    shown = drawn_texts(picture.ax)
    assert plain(f"Of {text}", 160).split("\n")[0] in "\n".join(shown)
    assert max(map(len, shown)) <= 160
    assert not re.search("[\u200b\u202e\ufeff\0]", "".join(shown))
    assert not any("mathdefault" in one for one in shown)


@pytest.mark.parametrize("kind", ["TeX", "underscore", "Markdown", "HTML", "no glyph"])
def test_names_stand_in_rows_and_legends_as_they_are(kind):
    text = NASTY[kind]
    assert text in drawn_texts(plot.speed_bars([plot.Bar(text, measured=1.0)], unit="s").ax)
    legend = plot.curves({text: [1.0, 2.0]}).ax.get_legend()
    assert [one.get_text().strip() for one in legend.get_texts()] == [text]
    named = plot.gantt(figures(text)["gantt"]["ranks"]).ax.get_legend()
    assert text in [one.get_text().strip() for one in named.get_texts()]


def test_a_logarithmic_axis_has_numbers_and_no_formulas():
    picture = FIGURES["rate_sweeps"](**figures()["rate_sweeps"])
    assert {"0.01", "0.1", "1"} <= set(drawn_texts(picture.ax))
    few = plot.readings(figures()["readings"]["timings"])
    assert "100 ms" in drawn_texts(few.ax)


def test_half_a_letter_is_drawn_and_shown():
    half, axes = "a\udc80b", plot.new_axes()
    axes.set_title(half)
    assert "a\ufffdb" in drawn_texts(axes)
    for shown in (
        repr(Note(half)),
        Note(half)._repr_html_(),
        sentence_data(half)["text/plain"],
        repr(Picture(None, half)),
    ):
        assert shown.encode()


HTML = {
    "note": lambda text: Note(text)._repr_html_(),
    "outcome": lambda text: Outcome("00.1", "not yet", text)._repr_html_(),
    "table": lambda text: Table(((text,),), (text,), text, (text,))._repr_html_(),
    "sentence": lambda text: sentence_data(text)["text/html"],
}


@pytest.mark.parametrize("kind", NASTY)
@pytest.mark.parametrize("made", HTML)
def test_a_page_shows_every_text_as_it_is(made, kind):
    found = HTML[made](NASTY[kind])
    if kind == "Markdown":  # of which code alone is shown as such
        found = found.replace("<code>", "`").replace("</code>", "`")
    assert f"class='{LITERAL}'" in found.replace('"', "'"), "or MathJax would look for formulas"
    assert as_html(NASTY[kind]).replace("\n", "<br>") in found.replace("\n", "<br>")
    assert "<script" not in found
    assert plain(NASTY[kind]) in html.unescape(found.replace("<br>", "\n"))


@pytest.mark.parametrize("kind", sampled(list(NASTY), 5))
def test_boards_draw_every_text_as_it_is(kind, home):
    text = NASTY[kind]
    board = SpeedBoard("00.1", text)
    board.absent(text.strip() or "x", text)
    curves = Curves(text, x=text, y=text)
    curves.add(**{text: 1.0})
    curves.finish()
    explorer = Explorer(lambda axes, n: axes.set_title(text).get_text(), n=(1, 3))
    for live in (board, curves, explorer):
        drawn_texts(live._axes)
        assert "<script" not in live._caption.value
