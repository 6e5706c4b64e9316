import statistics

import pytest

from exercises.nb01 import published_matmuls
from kerneltrace.tiles import TENSOR_SHARE
from labkit.core.errors import BadArgument, DataError
from labkit.measure import published


def test_published_matmuls_were_read_from_a_source_and_stay_below_the_peak():
    rows = published_matmuls.matmuls()
    assert len(rows) > 30
    assert all(row.source and row.source != "memory" for row in rows)
    best = [row for row in rows if row.dtype == "bf16" and "torch" in row.library]
    assert all(0.3 < row.share < 1 for row in best)
    assert "271 TFLOP/s of 312 TFLOP/s (87%), stas00" in str(
        next(r for r in best if r.device == "NVIDIA A100 SXM")
    )


def test_a_damaged_table_says_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "damaged.csv").write_text("gpu,dtype\nA100,bf16\n")
    monkeypatch.setattr(published, "FOLDERS", (tmp_path,))
    with pytest.raises(
        DataError, match=r"line 2 is damaged: expected a column 'confidence', got none"
    ):
        published.table("damaged")


def test_a_published_bus_has_its_rate_and_source():
    bus = published.bus("H200", "PCIe 5 x16")
    assert bus.bytes_per_s == pytest.approx(55.43e9)
    assert "not measured here: stas00/ml-engineering" in str(bus)


def test_an_unpublished_bus_is_refused_with_what_there_is():
    with pytest.raises(
        BadArgument,
        match=(
            r"No copy rate was published for A100 on PCIe 4\. Published are: H200 on"
            r" PCIe 5 x16"
        ),
    ):
        published.bus("A100", "PCIe 4")


def test_the_share_of_the_tensor_cores_is_what_torch_reaches():
    rows = published.table("matmul_efficiency")
    reached = [
        float(row["achieved_tflops"]) / float(row["peak_tflops"])
        for row in rows
        if row["gpu"].startswith("NVIDIA")
        and row["dtype"] == "bf16"
        and row["library"].startswith("torch.matmul")
    ]
    assert len(reached) == 7
    assert statistics.median(reached) == pytest.approx(TENSOR_SHARE, abs=0.005)
