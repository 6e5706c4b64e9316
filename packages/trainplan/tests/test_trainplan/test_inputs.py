"""Tables that come with the package, a cluster's device, and what functions take."""

import dataclasses
import math
import re

import numpy as np
import pytest

import gpufacts
from trainplan import Cluster, Layout, best_layout, costs, csv_tables, model, step


@pytest.mark.parametrize("text", ["name,confidence\na\n", 'name,confidence\n"a'])
def test_a_damaged_table_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_tables, "DATA", tmp_path)
    (tmp_path / "damaged.csv").write_text(text)
    with pytest.raises(RuntimeError, match=r"damaged\.csv"):
        csv_tables.rows("damaged")
    csv_tables.rows.cache_clear()
    with pytest.raises(RuntimeError, match="Install trainplan again"):
        csv_tables.rows("missing")


def test_a_cluster_takes_a_name_or_a_device_of_your_own():
    h100 = gpufacts.find("H100 SXM5 80GB")
    mine = dataclasses.replace(h100, name="mine", memory_bytes=96e9, source="measured")
    assert Cluster("H100 SXM5 80GB", 8).gpu is h100
    assert Cluster(mine, 8).gpu is mine
    with pytest.raises(gpufacts.UnknownDevice, match="got 'no such thing'"):
        Cluster("no such thing", 8)
    with pytest.raises(TypeError, match="the name of a device or a Device, got int"):
        Cluster(5, 8)


def test_a_short_name_of_a_device_is_said_with_what_it_was_taken_as():
    llama = model("Llama-3-8B")
    layout = Layout(8, zero=3)
    short = step(llama, Cluster("H100", 8), layout, 64)
    whole = step(llama, Cluster("H100 SXM5 80GB", 8), layout, 64)
    words = "'H100' is taken as H100 SXM5 80GB"
    for text in (
        str(short),
        str(short.table()),
        str(best_layout(llama, short.cluster, 64)),
    ):
        assert text.count(words) == 1
    assert "is taken as" not in str(whole) + str(whole.table())
    assert short.seconds == whole.seconds


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("8", TypeError),
        (None, TypeError),
        (True, TypeError),
        (2.5, TypeError),
        (0, ValueError),
        (-1, ValueError),
    ],
)
def test_a_count_is_a_whole_number_of_at_least_1(value, error):
    words = f"Expected data to be a whole number of at least 1, got {value!r}."
    with pytest.raises(error, match=re.escape(words)):
        Layout(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_number_of_bytes_is_finite(value):
    with pytest.raises(ValueError, match="n_bytes to be a finite number of at least 0"):
        costs.all_reduce_s(value, 8, costs.Link(1e-5, 1e9))


def test_the_numbers_of_numpy_become_python_s_and_a_dtype_its_name():
    layout = Layout(np.int64(4), zero=np.int8(3), dtype=np.dtype("float32"))
    assert layout == Layout(4, zero=3, dtype="float32")
    assert {type(layout.data), type(layout.zero)} == {int}
    huge = costs.matmul(*np.array([2**21] * 3))
    assert huge.flop == 2 * 2**63  # which is no int64


def test_the_share_and_the_name_that_were_meant_are_said():
    with pytest.raises(
        ValueError, match=r"got 97\. It is a share: write 0\.97 for 97 %"
    ):
        Cluster("H100 SXM5 80GB", 8, reserve=97)
    with pytest.raises(ValueError, match="The nearest is 'full'"):
        Layout(recompute="ful")
    with pytest.raises(TypeError, match=r"torus\[1\] to be a whole number"):
        Cluster("TPU v5p (chip)", 8, torus=(2, None, 2))
