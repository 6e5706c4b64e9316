from dataclasses import dataclass

import pytest
from IPython.lib.pretty import pretty

from labkit.core.display import Note, Shown, Table, linked_html, page_name
from labkit.core.errors import LabError
from labkit.core.text import printable

TABLE = Table(
    (("T4", "16 GB"), ("<b>", "x")), ("name", "memory"), "GPUs", ("Peaks are dense.",)
)


def test_a_table_is_aligned_as_text():
    assert str(TABLE) == "GPUs\nname  memory\nT4    16 GB\n<b>   x\nPeaks are dense."
    assert str(Table((("a", "b"),))) == "a  b"


def test_a_notebook_shows_the_words_and_not_the_fields():
    @dataclass(frozen=True, repr=False)
    class Answer(Shown):
        value: int = 42

        def __str__(self):
            return "42, of course"

    assert pretty(Answer()) == "42, of course"


def test_code_in_words_is_shown_as_code_and_still_safe():
    words = "needs `make <x>`, `a` and a lone ` mark"
    shown = Table(((words,),), notes=(words,))._repr_html_()
    assert (
        shown.count("<code>make &lt;x&gt;</code>, <code>a</code> and a lone ` mark")
        == 2
    )
    assert Note(words)._repr_html_().count("<code>") == 2


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://github.com/a/b/blob/0a1/c/d/README.md#L3", "a/b, d/README.md"),
        ("https://raw.githubusercontent.com/a/b/main/x.py", "a/b, x.py"),
        ("https://github.com/a/b/pull/12/files", "a/b, pull request 12"),
        ("https://github.com/a/b", "a/b"),
        ("https://arxiv.org/abs/1706.02677v2", "arXiv:1706.02677"),
        ("https://doi.org/10.1145/1465482", "doi:10.1145/1465482"),
        ("https://docs.x.org/guide/index.html", "docs.x.org, guide"),
        ("https://docs.x.org/notes/cuda.html?highlight=a", "docs.x.org, cuda"),
        ("https://x.org", "x.org"),
    ],
)
def test_a_link_says_which_page_it_is(address, words):
    assert page_name(address) == words
    shown = linked_html(f"See {address}.")
    assert shown == f'See <a href="{address}" target="_blank">{words}</a>.'


def test_a_links_words_are_short_and_safe():
    shown = linked_html(f"https://x.org/{'a' * 500}/%3Cb%3E&c and https://x.org/<b>")
    assert "<b>" not in shown
    assert len(page_name(f"https://x.org/{'a' * 500}")) < 60


def test_what_would_move_a_terminal_or_turn_a_page_around_is_written_as_its_code():
    assert printable("\x1b[2J\udcff\u202e\ufeff\u2028") == (
        r"\x1b[2J\udcff\u202e\ufeff\u2028"
    )
    assert printable("é\u00a0漢\tb\nc") == "é\u00a0漢 b\nc"
    assert printable("a\nb", in_lines=False) == r"a\nb"
    assert printable("one two three", 10) == "one two..."
    assert printable(str(LabError("\x07"))) == str(LabError("\x07")) == r"\x07"
