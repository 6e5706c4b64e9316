"""Files from strangers: whatever they hold, the page is made, in bounded time and size,
and shows them as text.
"""

import json
import os
import random
import re
import tracemalloc
from pathlib import Path

import pytest

from labkit.core.errors import DataError
from labkit.core.results import (
    Attempt,
    Best,
    Measurement,
    Prediction,
    Verdict,
    now,
    to_line,
)
from teaching import class_files, pool
from teaching.__main__ import main as teaching
from teaching.class_files import read_class
from tests.selection import sampled

KEY = {"section": "00.3", "what": "all threads"}
GOOD = {
    "measurement": Measurement(
        **KEY,
        value=3.0,
        unit="s",
        origin="measured",
        machine="m",
        when=now(),
        samples=(1.0, 2.0),
        size="batch 1",
        dtype="float32",
        claims=("C01",),
        versions={"torch": "2"},
        low=1.0,
        high=2.0,
        waited=0.5,
    ),
    "prediction": Prediction(**KEY, value=2.0, unit="s", when=now()),
    "verdict": Verdict("C01", "holds", "because", "00.3", "m", now()),
    "attempt": Attempt(
        "00.3", "00.3", "not yet", now(), answer="1", step=1, message="no"
    ),
    "best": Best("23.4", "23.4", {"sectors": 96}, {"sectors": 64}, now(), "64 numbers"),
}
MARKUP = (
    "<script>alert(1)</script><img src=x onerror=alert(1)><a href=http://x.example>"
)

# What no field may hold: each is put into every field of every kind.
BAD = {
    "null": None,
    "object": {"a": {"b": 1}},
    "huge": 1e300,
    "digits": 10**400,
    "nan": float("nan"),
    "long": "x" * 1_000_001,
    "surrogate": "\ud800",
    "escape": "\x1b[2J\x1b]0;owned\x07",
    "turned": "\u202egnp.exe",
    "markup": MARKUP,
    "many": ["C01"] * 10_000,
    "deep": json.loads("[" * 200 + "]" * 200),
    "empty": "",
    "unknown": "99.9 nobody asks for this",
}
CASES = [
    (kind, field, name)
    for kind, entry in GOOD.items()
    for field in json.loads(to_line(entry)) | {"extra": 0}
    for name in BAD
]


def line(_kind, **changed):
    return json.dumps(json.loads(to_line(GOOD[_kind])) | changed)


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f"{one}\n" for one in lines), encoding="utf-8", errors="surrogatepass"
    )
    return path


@pytest.fixture
def ada(tmp_path):
    """An honest reader's file in a class of her own."""
    return write(tmp_path / "class" / "ada.jsonl", *map(to_line, GOOD.values()))


def page_of(folder):
    target = folder.parent / "pool.html"
    skipped = pool.write_page([folder], target)
    return target.read_text(encoding="utf-8"), skipped


@pytest.mark.slow
def test_every_mutation_of_every_field_is_taken_as_a_good_line_or_set_aside_in_one_sentence(
    ada,
):
    taken = 0
    for kind, field, name in CASES:
        mallory = write(
            ada.with_name("mallory.jsonl"),
            line("measurement", value=7.0, what="another"),
            line(kind, **{field: BAD[name]}),
        )
        readers, aside = read_class([ada.parent])
        case = (kind, field, name)
        assert [reader.path.stem for reader in readers].count("ada") == 1, case
        of_mallory = [sentence for sentence in aside if "mallory" in sentence]
        assert len(of_mallory) == len(aside) <= 1, case
        assert all(
            len(sentence) < 600 and sentence.isprintable() for sentence in aside
        ), case
        entries = [
            e for reader in readers if reader.path == mallory for e in reader.entries
        ]
        assert len(entries) == 2 - len(aside), case
        taken += not aside
        if entries[1:]:
            told = vars(entries[1])
            texts = [text for text in told.values() if isinstance(text, str)]
            assert max(map(len, texts)) <= 2_000, case
            numbers = [value for value in told.values() if type(value) in (int, float)]
            assert all(abs(value) <= 1e30 for value in numbers), case
    assert 0.02 * len(CASES) < taken < 0.3 * len(CASES), (
        "neither everything nor nothing is refused"
    )


@pytest.mark.slow
def test_what_is_taken_of_them_makes_a_page_without_markup_links_or_scripts(ada):
    lines = [
        line(kind, **{field: BAD[name]})
        for kind, field, name in CASES
        if name not in ("long", "many")
    ]
    for number in range(0, len(lines), 60):
        write(
            ada.with_name(f"{number}.jsonl"),
            line("prediction", value=1.0 + number),
            *lines[number : number + 60],
        )
    write(
        ada.with_name("links.jsonl"),
        line("measurement", machine="https://evil.example/a", size="`code`"),
        line("measurement", machine=MARKUP[:100]),
        line("verdict", machine="https://evil.example/b"),
    )
    page, skipped = page_of(ada.parent)
    assert "evil.example" in page, "it is shown as text"
    assert not re.findall(r"<(?:script|a|code|iframe|form|object)\b", page)
    assert not re.findall(r"<[^>]*\bon\w+=", page)
    assert "default-src 'none'" in page.split("<title>")[0]
    assert {c for c in page if not c.isprintable()} <= {"\n"}
    assert all(sentence.isprintable() for sentence in skipped)


@pytest.mark.slow
def test_strange_files_are_refused_at_once_and_their_names_write_no_escapes(ada):
    for name in ("\x1b[31mred", "\u202egnp", "\udcff", "a\nb"):
        entry = line("prediction", value=4.0 + len(name))
        write(ada.with_name(f"{name}.jsonl"), entry, "junk")
    os.mkfifo(ada.with_name("pipe.jsonl"))
    ada.with_name("link.jsonl").symlink_to(ada)
    ada.with_name("loop.jsonl").symlink_to("loop.jsonl")
    ada.with_name("folder.jsonl").mkdir()
    with open(ada.with_name("large.jsonl"), "wb") as file:
        file.truncate(100 * 2**20)
    target = ada.parent.parent / "pool.html"
    tracemalloc.start()
    sentences = pool.write_page([ada.parent], target, names=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20
    assert len(sentences) == 9
    assert all(sentence.isprintable() for sentence in sentences)
    for name in ("pipe", "link", "loop", "folder"):
        assert (
            sum(f"{name}.jsonl is skipped" in sentence for sentence in sentences) == 1
        )
    too_large = "large.jsonl is skipped: expected a file of at most 4 MiB"
    assert any(too_large in sentence for sentence in sentences)
    assert "\x1b" not in target.read_text(encoding="utf-8")


def test_files_of_junk_are_a_sentence_each_and_few_of_their_lines_are_parsed(
    ada, monkeypatch
):
    read_class([ada.parent])  # reads, once, the names that recorded runs hold
    parsed = []
    from_line = class_files.results.from_line

    def counted(line):
        parsed.append(line)
        return from_line(line)

    monkeypatch.setattr(class_files.results, "from_line", counted)
    for number in range(50):
        ada.with_name(f"{number}.jsonl").write_bytes(b"%d\n" % number * 2_000)
    readers, aside = read_class([ada.parent])
    assert [reader.path for reader in readers] == [ada]
    assert (
        sum("most lines are no results" in sentence for sentence in aside)
        == len(aside)
        == 50
    )
    assert len(parsed) <= 50 * 101 + 10


def test_a_file_of_more_machines_or_entries_than_one_reader_has_is_cut(
    ada, monkeypatch
):
    write(
        ada.with_name("many.jsonl"),
        *[line("verdict", machine=str(n)) for n in range(20)],
    )
    monkeypatch.setattr(class_files, "_MOST_ENTRIES", 12)
    write(
        ada.with_name("long.jsonl"),
        *[line("attempt", answer=str(n)) for n in range(20)],
    )
    readers, aside = read_class([ada.parent])
    counts = {reader.path.stem: len(reader.entries) for reader in readers}
    assert counts == {"ada": len(GOOD), "many": 8, "long": 12}
    assert len(aside) == 2
    parts = [("00", "x" * 10), ("01", "y" * 10), ("02", "z")]
    first, second = class_files.within(parts, most=15)
    assert first == parts[0]
    assert "would make this page too large" in second[1]


def test_a_file_with_all_of_anothers_lines_does_not_make_that_disappear(ada):
    everything = ada.read_text() + line("prediction", value=9.0) + "\n"
    write(ada.with_name("mallory.jsonl")).write_text(everything)
    readers, aside = read_class([ada.parent], names=True)
    assert sorted(reader.name for reader in readers) == ["ada", "mallory"]
    (sentence,) = aside
    assert "ada.jsonl counts, though all of it is in" in sentence


def test_an_unknown_claim_exercise_notebook_or_guess_is_named(ada):
    wrong = {
        "claim": line("verdict", claim="C99"),
        "exercise": line("attempt", what="00.3z"),
        "notebook": line("prediction", section="99.3"),
        "guess": line("prediction", what="of my own"),
        "time": line("prediction", when="yesterday"),
    }
    for name, bad in wrong.items():
        write(ada.with_name("other.jsonl"), line("prediction", value=5.0), bad)
        (sentence,) = read_class([ada.parent])[1]
        assert "other.jsonl, line 2 is skipped: " in sentence, name
    write(ada.with_name("other.jsonl"), line("measurement", what="of my own"))
    assert read_class([ada.parent])[1] == [], "rows have names of a reader's choice"


def uploads(folder, *texts):
    """Files as pool.ipynb writes them: all of one name and one owner."""
    for number, text in enumerate(texts):
        write(folder / str(number) / "results.jsonl").write_text(text)
    return folder


def test_where_all_files_have_one_name_a_superset_makes_nothing_disappear(
    ada, tmp_path
):
    own = ada.read_text()
    more = own + line("prediction", value=9.0) + "\n"
    readers, aside = read_class([uploads(tmp_path / "two", own, more)])
    assert len(readers) == 2
    assert "counts, though all of it is in" in aside[0]
    third = line("prediction", value=4.0) + "\n"
    readers, aside = read_class([uploads(tmp_path / "three", own, more, third)])
    assert len(readers) == 3
    assert len(aside) == 1


def test_an_older_copy_counts_once_where_names_tell_readers_apart(ada, tmp_path):
    weeks = tmp_path / "weeks"
    write(weeks / "1" / "ada.jsonl").write_text(ada.read_text())
    write(weeks / "2" / "ada.jsonl").write_text(
        ada.read_text() + line("prediction", value=9.0) + "\n"
    )
    write(weeks / "2" / "bob.jsonl", line("prediction", value=4.0))
    readers, aside = read_class([weeks], names=True)
    assert sorted(reader.name for reader in readers) == ["2/ada", "bob"]
    (sentence,) = aside
    assert "1/ada.jsonl is skipped: all of it is in" in sentence


def test_a_folder_named_after_another_user_is_told(ada, tmp_path):
    mine = tmp_path / "home" / f"user-{os.getuid()}" / "results.jsonl"
    forged = tmp_path / "home" / f"user-{os.getuid() + 1}" / "results.jsonl"
    write(mine).write_text(ada.read_text())
    write(forged, line("prediction", value=4.0))
    readers, aside = read_class([tmp_path / "home"], names=True)
    told = f"made by user {os.getuid()}, not {os.getuid() + 1}"
    assert {told in reader.name for reader in readers} == {True, False}
    assert aside == [f"{forged} counts, {told}."]


@pytest.mark.parametrize(
    "when",
    ["2026-02-31T10:00:00+00:00", "2026-01-01T29:00:00Z", "2026-01-01T10:00:61+00:00"],
)
def test_a_time_that_no_clock_shows_is_set_aside_and_the_page_is_made(ada, when):
    write(ada.with_name("bob.jsonl"), line("prediction", value=5.0, when=when))
    page, skipped = page_of(ada.parent)
    assert "1 reader" in page
    assert "when is no time" in skipped[0]


def test_the_page_is_written_through_no_link_that_somebody_planted(ada, tmp_path):
    victim = write(tmp_path / "victim", "precious")
    target = tmp_path / "pool.html"
    for name in (".pool.html.new", "pool.html"):
        target.with_name(name).symlink_to(victim)
    pool.write_page([ada.parent], target)
    assert victim.read_text() == "precious\n"
    assert not target.is_symlink()
    assert target.read_text(encoding="utf-8").startswith("<!")


def test_a_page_is_written_again_every_second_to_every_day(ada, tmp_path):
    for seconds in ("0", "86401", "1" + "0" * 400, "soon"):
        with pytest.raises(SystemExit):
            teaching(["pool", str(ada.parent), "--every", seconds])


SCHEMA = json.loads(
    Path(class_files.__file__)
    .with_name("results.schema.json")
    .read_text(encoding="utf-8")
)["definitions"]


def around(node, draw):
    """A value that fits a node of the schema, is at an edge of it, or is just beyond."""
    if "$ref" in node:
        return around(SCHEMA[node["$ref"].rpartition("/")[2]], draw)
    if "enum" in node:
        return draw.choice([*node["enum"], "none of these"])
    kind = node.get("type", "string")
    kind = draw.choice(kind) if isinstance(kind, list) else kind
    if kind == "null":
        return None
    if kind in ("number", "integer"):
        low = node.get("minimum", -1e30)
        high = node.get("maximum", 1e30)
        return draw.choice([low, high, 0, -0.0, 1, 1e-300, low - 1, high * 10, 1e308])
    if kind == "array":
        parts = draw.choice([0, 1, 3, node.get("maxItems", 5) + 1])
        return [around(node.get("items", {"type": "number"}), draw)] * parts
    if kind == "object":
        value = around(node.get("additionalProperties", {}), draw)
        keys = draw.choice([0, 1, node.get("maxProperties", 5) + 1])
        return {
            draw.choice(["torch", "k" * 61, ""]) + str(n): value for n in range(keys)
        }
    longest = node.get("maxLength", 30)
    return draw.choice(
        [
            "",
            "x" * longest,
            "x" * (longest + 1),
            "\u202e\x1b[2J",
            "00.3",
            "99.99",
            f"20{draw.randint(0, 99):02}-{draw.randint(0, 19):02}-{draw.randint(0, 39):02}"
            f"T{draw.randint(0, 29):02}:{draw.randint(0, 59):02}:"
            f"{draw.randint(0, 69):02}{draw.choice(['Z', '+00:00', '+24:00'])}",
        ]
    )


def one_line(seed):
    """A line with one or two fields around what the schema allows."""
    draw = random.Random(seed)
    kind = draw.choice(list(GOOD))
    fields = SCHEMA[kind]["properties"]
    names = draw.sample(sorted(fields), draw.choice([1, 1, 2]))
    return line(kind, **{name: around(fields[name], draw) for name in names})


@pytest.mark.slow
@pytest.mark.parametrize("part", sampled(list(range(20)), 2))
def test_no_line_around_the_schema_stops_the_page(part, tmp_path):
    """2,000 files of one line: each makes a page, or is set aside in a sentence."""
    made = 0
    for seed in range(100 * part, 100 * part + 100):
        file = write(tmp_path / str(seed) / "one.jsonl", one_line(seed))
        try:
            page, skipped = page_of(file.parent)
        except DataError as error:
            page, skipped = "", [str(error)]
        assert bool(page) != bool(skipped), one_line(seed)
        assert all(sentence.isprintable() for sentence in skipped)
        made += bool(page)
    assert 10 < made < 95
