from dataclasses import dataclass

from IPython.lib.pretty import pretty

from labkit.core.display import Note, Shown, Table

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
