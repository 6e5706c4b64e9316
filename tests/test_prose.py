"""The notebooks' sentences are short, and few hold one relative clause in another."""

import re

from tests.helpers import cells, notebook_paths

MOST_WORDS = 28
# shares: half of what the notebooks had at commit 021b70b
LONG = 0.0134
NESTED = 0.00157


def sentences(text):
    """The sentences of a Markdown cell, without headings and tables; code and formulas
    count as one word.
    """
    text = re.sub(r"(?m)^[#|].*$", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`|\$[^$]*\$", "X", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*\d] )", text):
        yield from re.split(
            r"(?<=[.?!:;])[\"”*)]*\s+(?=[A-Z“\"*(\d])", " ".join(paragraph.split())
        )


def all_sentences():
    texts = (
        text
        for path in notebook_paths()
        for kind, text, _, _ in cells(path)
        if kind == "markdown"
    )
    return [sentence for text in texts for sentence in sentences(text)]


def is_long(sentence):
    return len(re.findall(r"[\w’'-]+", sentence)) > MOST_WORDS


def is_nested(sentence):
    return len(re.findall(r"\b(?:which|whose|who|whom|that)\b", sentence)) >= 3


def test_few_sentences_are_long_or_nest_relative_clauses():
    every = all_sentences()
    long = [sentence for sentence in every if is_long(sentence)]
    assert len(long) <= LONG * len(every), long
    nested = [sentence for sentence in every if is_nested(sentence)]
    assert len(nested) <= NESTED * len(every), nested


def test_sentences_are_counted_as_a_reader_sees_them():
    text = (
        "# A heading\n\nOne. Two: it has `some code. More`, and [a link."
        " Here](https://x.org)."
    )
    assert list(filter(None, sentences(text))) == [
        "One.",
        "Two: it has X, and a link.",
        "Here.",
    ]
    assert list(filter(None, sentences("*Three*\n\n- four\n- five"))) == [
        "*Three*",
        "- four",
        "- five",
    ]
    assert is_long("word " * 29)
    assert not is_long("word " * 28)
    assert is_nested("a which that who")
