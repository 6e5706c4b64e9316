"""The comparison with a GPU's counters, with a stand-in for ncu: what it reads, and
what it refuses.
"""

import stat
import sys

import pytest

from benchmarks import counters
from labkit.core.errors import DataError
from test_kerneltrace.textbook import ENTRIES

NAMES = [name for name, _, _ in counters.COUNTERS.values()]


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """Put a program called ncu on the path that prints `text`."""

    def put(text, status=0):
        script = tmp_path / "ncu.py"
        script.write_text(f"print({text!r})\nraise SystemExit({status})\n")
        program = tmp_path / "ncu"
        # no "#!" with Python's own path, which may have a space
        program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{script}'\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path))

    return put


def csv_of(*launches):
    heads = ["ID", "Kernel Name", *NAMES]
    units = ["", "", *["" for _ in NAMES]]
    rows = [[str(i), "k", *values] for i, values in enumerate(launches)]
    return "==PROF== Connected\n" + "\n".join(
        ",".join(f'"{cell}"' for cell in row) for row in [heads, units, *rows]
    )


def test_counters_are_read_launch_by_launch(ncu):
    ncu(csv_of(["1", "2", "3", "4", "5", "6"], ["1,024", "0", "0", "0", "0", "7"]))
    first, second = counters.counted()
    assert [first[name] for name in NAMES] == [1, 2, 3, 4, 5, 6]
    assert second[NAMES[0]] == 1024
    assert second[NAMES[5]] == 7


def test_a_line_that_was_cut_off_is_left_out():
    assert (
        len(counters.csv_rows(csv_of(["1", "2", "3", "4", "5", "6"]) + '\n"1","k","1'))
        == 2
    )


def test_counters_that_may_not_be_read_give_one_sentence_with_what_to_do():
    with pytest.raises(
        DataError, match=r"not allowed to read.*ERR_NVGPUCTRPERM.*ToAdminUsers=0"
    ) as error:
        counters.csv_rows(
            "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user"
            " does not have permission to access NVIDIA GPU Performance Counters on the"
            " target device 0.\n==WARNING== No kernels were profiled.\n"
        )
    assert "\n" not in str(error.value)
    assert "--cap-add=SYS_ADMIN" in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Did the script run a kernel on the GPU"),
        ("==WARNING== No kernels were profiled.\n", "It says: ==WARNING== No kernels"),
        (csv_of().splitlines()[1], "found no row"),
    ],
)
def test_output_without_a_table_says_why(text, words):
    with pytest.raises(DataError, match=words):
        counters.csv_rows(text)


@pytest.mark.slow
def test_the_gpu_is_measured_and_the_trace_predicts():
    entry = next(e for e in ENTRIES if e.name == "stride 2")
    found = {m.what: m for m in counters.compare(entry, dict.fromkeys(NAMES, 8.0))}
    sectors = found["stride 2: sectors of global loads"]
    assert (sectors.value, sectors.predicted, sectors.origin) == (8.0, 64.0, "measured")
