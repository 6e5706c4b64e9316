"""Tables that come with the package, and a cluster's device."""

import dataclasses

import pytest

import gpufacts
from trainplan import Cluster, csv_tables
from trainplan.errors import DataError, UnknownDevice


@pytest.mark.parametrize("text", ["name,confidence\na\n", 'name,confidence\n"a'])
def test_a_damaged_table_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_tables, "DATA", tmp_path)
    (tmp_path / "damaged.csv").write_text(text)
    with pytest.raises(DataError, match=r"damaged\.csv"):
        csv_tables.rows("damaged")
    csv_tables.rows.cache_clear()
    with pytest.raises(DataError, match="Install trainplan again"):
        csv_tables.rows("missing")


def test_a_cluster_takes_a_name_or_a_device_of_your_own():
    h100 = gpufacts.find("H100 SXM5 80GB")
    mine = dataclasses.replace(h100, name="mine", memory_bytes=96e9, source="measured")
    assert Cluster("H100 SXM5 80GB", 8).gpu is h100
    assert Cluster(mine, 8).gpu is mine
    with pytest.raises(UnknownDevice, match="got 'no such thing'"):
        Cluster("no such thing", 8)
    with pytest.raises(TypeError, match="the name of a device or a Device, got int"):
        Cluster(5, 8)
