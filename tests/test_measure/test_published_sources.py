"""What others published, held against the texts of its sources: `make nightly`, where
`python -m scripts.source_texts` has brought them.
"""

import calendar
import functools
import itertools
import math
import re
from decimal import Decimal

import pytest

from labkit.core.paths import PUBLISHED
from scripts import source_texts

# The columns of a table that its source prints: figures that stand together, as in a
# row of its own, or apart (/).
PRINTED = {
    "announced": "value",
    "bigscience_layouts": "memory_gb iteration_s",
    "boards": "printed",
    "claims_evidence": "finding",
    "collectives_busbw_a100_h200": "payload_bytes / time_us algbw_gbs busbw_gbs",
    "flash_attention": "value",
    "gpt2_ladder": "tokens_per_s",
    "image_ladders": "seconds epochs images_per_s",
    "interconnect_specs": "unidirectional_gbs bidirectional_gbs / latency_us",
    "kernel_times": "printed",
    "l2_sweeps": "kib gb_per_s",
    "llmfoundry_throughput_a100": "seq_len gpus mfu_pct hfu_pct tokens_per_s",
    "llmfoundry_throughput_h100": "seq_len gpus mfu_pct hfu_pct tokens_per_s",
    "matmul_efficiency": "achieved_tflops",
    "maxtext_tpu": "tflops_per_chip mfu_pct tokens_per_s_per_chip",
    "megatron_bridge": "gpus global_batch_seqs tokens_per_s_per_gpu tflops_per_gpu",
    "megatron_bridge_2026": "gpus global_batch_seqs tokens_per_s_per_gpu",
    "megatron_table1": "hidden layers gpus tflops_per_gpu pct_of_peak",
    "memcpy_bandwidth": "bandwidth_gbs",
    "memory": "published_gb",
    "nanochat_records": "date hours",
    "nanotron": "mfu_pct / memory_gb",  # a plot of each
    "nemo": "gpus gbs tokens_per_s_per_gpu tflops_per_gpu",
    "nsight_reports": "value",
    "rents": "source",
    "rl_generation": "percent",
    "selective_recompute": "iteration_s",
    "sm_rates": "value",
    "speedrun_records": "record minutes date",
    "tile_times": "printed",
    "torchtitan": "tokens_per_s_per_gpu memory_gib",
    "zero_bubble_throughput_small": "samples_per_gpu_per_s memory_gb",
    "zero_bubble_times": "t_forward_ms t_backward_input_ms t_backward_weight_ms",
}
# Units in which sources print besides the column's: Gbit/s or MB/s for GB/s, ns or ms
# for µs, GFLOP/s for TFLOP/s, GiB for GB.
UNITS = {
    "collectives_busbw_a100_h200": (1, 1 / 8),
    "interconnect_specs": (1, 1 / 1000, 1000),
    "matmul_efficiency": (1, 1 / 1000),
    "memory": (1, 1024**3 / 1000**3),
}
# Tables that no text prints, and what holds them.
OTHERWISE = {
    "calculon_predictions": "a program's results",
    "kernel_languages": "names that tests/test_exercises/test_hopper_blackwell18.py"
    " looks up in the packages",
    "planner_steps": "made from the other tables by trainplan_published.planner_steps",
}
APART = 200  # letters: how far the figures of a row may stand apart
NEAR = 1000  # and from a word of it, such as a table's heading
SHORT = 4  # digits: more are hardly anywhere by chance
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_FIGURE = re.compile(r"\d{4}-\d\d-\d\d|\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_GROUPED = re.compile(r"(?<![\w.,])\d{1,4}(?:[,_]\d{3})+(?:\.\d+)?(?![\d,])")
_PREFIXED = re.compile(r"(?<![\w.,])(\d+(?:\.\d+)?)([kKMG])(?:i?B)?\b")
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3}
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_MONTHS = list(calendar.month_abbr)[1:]
_NO_WORDS = ("source", "confidence", "provenance", "notes", "note")


@functools.cache
def numbers_in(text):
    """[(place, number)] of a source's text."""
    grouped = [
        (match.start(), float(re.sub("[,_]", "", match[0])))
        for match in _GROUPED.finditer(text)
    ]
    plain = [(match.start(), float(match[0])) for match in _NUMBER.finditer(text)]
    prefixed = [
        (match.start(), float(match[1]) * thousand ** _POWERS[match[2]])
        for match in _PREFIXED.finditer(text)
        for thousand in (1000, 1024)
    ]
    return sorted(grouped + plain + prefixed)


def places_of(figure, text, unit=1):
    """Where a text has a figure: itself, one that rounds to it, or a date."""
    if date := _DATE.fullmatch(figure):
        year, month, day = date.groups()
        name = _MONTHS[int(month) - 1]
        written = rf"{figure}|{month}/{day}/{year[2:]}|{name} {int(day)},? {year}"
        return [match.start() for match in re.finditer(written, text)]
    decimals = -Decimal(figure).as_tuple().exponent
    value = float(figure) / unit
    distance = 0.501 * 10**-decimals / unit
    return [
        place for place, number in numbers_in(text) if abs(number - value) < distance
    ]


def words_of(row):
    """What a row says of its figures: the beginnings of its words."""
    cells = [row[column] for column in row if column not in _NO_WORDS]
    said = " ".join(cell for cell in cells if not cell.startswith("https:"))
    return {
        word[:5].lower()
        for word in re.findall(r"[^\W\d_]{4,}|[A-Z]+\d+\w*|\d+[A-Z]+", said)
    }


def figures_of(table, row):
    """The figures of a row, in groups: those of a group stand together in the source.

    Of a sentence each figure is a group, without those that are a ratio of two others.
    """
    if table == "rents":
        return [re.findall(r"\$([\d.]+) for", row["source"])]
    if table == "boards":
        printed = row["printed"] or row["value"]
        return [figures_in(figure) for figure in printed.split("/")]
    if table == "claims_evidence":
        figures = figures_in(row["finding"])
        return [[figure] for figure in figures if not is_a_ratio(figure, figures)]
    return [
        figures_in(" ".join(row[column] for column in columns.split()))
        for columns in without_derived(PRINTED[table], row).split("/")
    ]


def without_derived(columns, row):
    """The columns without those that the row's notes call derived."""
    for name in re.findall(r"(\w+) derived", row.get("notes", "")):
        columns = re.sub(rf"\b{name}(_\w+)?", "", columns)
    return columns


def figures_in(text):
    """The figures of a text, as a program writes them."""
    return [figure.replace(",", "") for figure in _FIGURE.findall(text)]


def is_a_ratio(figure, figures):
    """Whether a figure is another one over a third, or that in percent."""
    decimals = len(figure.partition(".")[2])
    others = [float(other) for other in figures if other != figure]
    pairs = itertools.permutations(others, 2)
    ratios = [above / below for above, below in pairs if below]
    return any(
        round(scale * ratio, decimals) == float(figure)
        for ratio in ratios
        for scale in (1, 100)
    )


def stand_together(figures, words, text, unit=1):
    """Whether figures stand near each other in a text, and a short one alone near a
    word.
    """
    places = [places_of(figure, text, unit) for figure in figures]
    if not places or not all(places):
        return False
    alone = sum(map(len, figures)) <= SHORT
    for place in min(places, key=len):
        near = all(
            any(abs(place - other) <= APART for other in each) for each in places
        )
        around = text[max(place - NEAR, 0) : place + NEAR].lower()
        if near and (not alone or any(word in around for word in words)):
            return True
    return False


def missing_of(table, row, texts):
    """The figures of a row that none of its sources' texts has in their place."""
    words = words_of(row)
    return [
        " and ".join(figures)
        for figures in figures_of(table, row)
        if figures
        and not any(
            stand_together(figures, words, text, unit)
            for text in texts
            for unit in UNITS.get(table, (1,))
        )
    ]


def test_each_published_table_has_texts_or_is_held_otherwise():
    tables = {path.stem for folder in PUBLISHED for path in folder.glob("*.csv")}
    assert tables == PRINTED.keys() | OTHERWISE.keys()
    assert not PRINTED.keys() & OTHERWISE.keys()


# of the work whose rate a source prints: the sides of a matrix, rows and columns
WORK = {"04.6": lambda n, _: 2 * n**3, "18.2": lambda rows, columns: 8 * rows * columns}


def from_printed(row):
    """A board's value, by what its source prints, but for a power of ten."""
    figures = [float(figure) for figure in figures_in(row["printed"])]
    if "/" in row["printed"]:
        return figures[0] / figures[1]
    if "%" in row["printed"]:
        return 1 + figures[0] / 100
    if row["printed"].endswith(" min"):
        return 60 * figures[0]
    if row["unit"] in ("s", "ms") and row["key"][:4] in WORK:
        size = [float(number) for number in figures_in(row["size"])]
        return WORK[row["key"][:4]](*size) / figures[0]
    return figures[0]


def test_a_boards_value_follows_from_what_its_source_prints():
    wrong = []
    for table, row in source_texts.published_rows():
        if table != "boards" or not row["printed"]:
            continue
        value, expected = float(row["value"]), from_printed(row)
        if row["unit"] == "x":
            decimals = max(2, len(row["value"].partition(".")[2]))
            right = abs(value - expected) <= 0.51 * 10**-decimals
        else:
            power = round(math.log10(value / expected))
            right = value == pytest.approx(expected * 10**power, rel=5e-4)
        if not right:
            wrong.append((row["key"], row["what"], row["value"], expected))
    assert wrong == []


TEXT = (
    """
On an RTX A6000, times of a sum of 4,194,304 numbers (`int32`):
| kernel           | time      | GB/s   |
| interleaved      | 8.054 ms  | 2.083  |
| several a thread | 0.268 ms  | 62.671 |
Published on Jan 9 2026. 7 of 10 runs.
"""
    + 1000 * "."
)


@pytest.mark.parametrize(
    ("figures", "words", "stand"),
    [
        (["8.054", "2.083"], set(), True),
        (["8.05"], {"inter"}, True),  # rounded
        (["8.055", "2.083"], set(), False),  # one digit changed
        (["8.054", "62.67"], set(), True),
        (["4194304"], set(), True),
        (["4194305"], set(), False),
        (["10"], {"runs"}, True),
        (["10"], {"warps"}, False),  # a short one, far from its words
        (["2026-01-09", "10"], set(), True),
        (["2026-01-08", "10"], set(), False),
    ],
)
def test_a_figure_with_another_digit_does_not_stand_in_the_text(figures, words, stand):
    assert stand_together(figures, words, TEXT) == stand


def test_a_sentences_ratio_need_not_stand_in_the_text():
    row = {"finding": "several numbers a thread: 8.054 to 0.268 ms, 30.1 times"}
    assert missing_of("claims_evidence", row, [TEXT]) == []
    row = {"finding": "several numbers a thread: 8.054 to 0.268 ms, 30.2 times"}
    assert missing_of("claims_evidence", row, [TEXT]) == ["30.2"]


@pytest.mark.nightly
@pytest.mark.parametrize("table", PRINTED)
def test_the_figures_of_a_row_stand_in_the_text_of_its_source(table):
    wrong = {}
    without = {}
    n = 0
    for name, row in source_texts.published_rows():
        if name != table:
            continue
        n += 1
        sources = source_texts.of_row(row)
        texts = [stored(source) for source in sources if source.path.exists()]
        if not texts:
            named = [source.name for source in sources] or [row["source"]]
            without.setdefault(" or ".join(named), []).append(row)
        elif missing := missing_of(table, row, texts):
            wrong[str([*row.values()])] = missing
    assert wrong == {}
    if without:
        pytest.skip(
            f"{sum(map(len, without.values()))} of {n} rows of {table} have no text in"
            f" build/sources ({', '.join(without)}): `python -m scripts.source_texts`"
            " brings what a network has"
        )


@functools.cache
def stored(source):
    """The text of a source."""
    return source.path.read_text(encoding="utf-8")
