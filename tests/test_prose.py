"""The notebooks' sentences are short, and few hold one relative clause in another. A
word is spelled in one way, in the notebooks and in the pages beside them.
"""

import re

from labkit.core.paths import ROOT
from tests.helpers import cells, notebook_paths

MOST_WORDS = 28
# shares: half of what the notebooks had at commit 021b70b
LONG = 0.0134
NESTED = 0.00157

PAGES = (
    "*.md",
    "book/*.md",
    "docs/**/*.md",
    "labkit/*.md",
    "data/*.md",
    "packages/*/*.md",
    "packages/*/docs/*.md",
)
# The spelling to use -> the others, as whole words: of two that were mixed, the one that
# the field uses more; everything else as in the United States.
SPELLINGS = {
    "all-reduce": r"allreduces?",
    "dataset": r"data[- ]sets?",
    "data sheet": r"datasheets?",
    "email": r"e-mails?",
    "file name": r"file-?names?",
    "GPU hour": r"GPU-hours?",
    "handout": r"hand-outs?",
    "micro-batch": r"micro ?batch(?:es)?",
    "runtime": r"run[- ]times?",
    "setup": r"set-ups?",
    "speed-up": r"speedups?",
    "timeline": r"time[- ]lines?",
    "timeout": r"time-outs?",
    "website": r"web[- ]sites?",
    "workload": r"work[- ]loads?",
    "behavior": r"behaviours?",
    "center": r"centres?|centred",
    "color": r"colour\w*",
    "fulfill": r"fulfils?",
    "gray": r"grey\w*",
    "labeled": r"labelled|modelled|cancelled",
    "neighbor": r"neighbour\w*",
    "optimize": r"(?:optim|minim|maxim|normal|general|special|serial|orthogonal|parallel"
    r"|initial|token|quant|summar|vector|organ|recogn|synchron)is(?:e[ds]?|ers?|ing|ations?)",
    "analyze": r"analys(?:ed?|ing)",
}


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


def plain(text):
    """A Markdown text without its code, addresses and comments."""
    text = re.sub(r"(?ms)^```.*?^```|<!--.*?-->", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`|\$[^$]*\$|https?://\S+", "", text)


def misspelled(text):
    """Each word of a text that is to be spelled in another way, with that way."""
    return [
        (word, right)
        for right, others in SPELLINGS.items()
        for word in re.findall(rf"(?i)(?<![\w-])(?:{others})(?![\w-])", plain(text))
    ]


def test_a_word_is_spelled_in_one_way():
    texts = {
        f"{path.name}, cell {number}": text
        for path in notebook_paths()
        for number, (kind, text, _, _) in enumerate(cells(path))
        if kind == "markdown"
    }
    for pattern in PAGES:
        for path in ROOT.glob(pattern):
            texts[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    misspelled_by_place = {place: misspelled(text) for place, text in texts.items()}
    assert {p: words for p, words in misspelled_by_place.items() if words} == {}


def test_other_spellings_are_seen_in_prose_and_not_in_code():
    seen = misspelled("Two data sets, a Speedup, optimised for [a time line](x.html).")
    assert [right for _, right in seen] == [
        "dataset",
        "speed-up",
        "timeline",
        "optimize",
    ]
    assert (
        misspelled("Set up `data set` anew: https://x.org/speedup is a promise.") == []
    )
