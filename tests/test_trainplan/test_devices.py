"""Devices: the package's own, labkit's, and any object with the same facts."""

import types

import pytest

from labkit.measure import catalog
from trainplan import Cluster, Layout, csv_tables, devices, find, model, step
from trainplan.errors import DataError, LayoutError, UnknownDevice

FACTS = (
    "name",
    "vendor",
    "architecture",
    "year",
    "sms",
    "boost_hz",
    "memory_bytes",
    "bandwidth_bytes_per_s",
    "interconnect_bytes_per_s",
    "pcie",
    "tdp_w",
    "vector_flop_per_s",
    "peaks",
)


def test_the_facts_are_those_of_the_catalogue():
    catalogued = catalog.devices()
    assert len(devices()) == len(catalogued)
    for own, other in zip(devices(), catalogued, strict=True):
        for fact in FACTS:
            assert (getattr(own, fact) or None) == (getattr(other, fact) or None), (
                own.name,
                fact,
            )
        assert find(own.name) is own
        assert find(f"NVIDIA {own.name.upper()}".replace(" ", "-")) is own
        assert all(
            find(name).name == catalog.find(name).name
            for name in own.reported_as.split(";")
            if name
        )
    assert (
        find("V100 SXM2 32GB").memory_bytes
        == catalog.find("V100 SXM2 32GB").memory_bytes
        == 32e9
    )


def facts_of(device):
    """An object that has a device's facts, and no hash."""
    return types.SimpleNamespace(**{fact: getattr(device, fact) for fact in FACTS})


def test_any_object_with_the_facts_is_a_device():
    """Such as one that is in no catalogue yet."""
    device = find("H100 SXM5 80GB")
    planned = [
        step(model("Llama-3-8B"), Cluster(given, 8), Layout(8, zero=3), 8)
        for given in (device, catalog.find("H100 SXM5 80GB"), facts_of(device))
    ]
    assert len({one.seconds for one in planned}) == 1


@pytest.mark.parametrize("wrong", [{"memory_bytes": "80 GB"}, {"peaks": None}])
def test_what_lacks_a_fact_is_refused(wrong):
    device = facts_of(find("H100 SXM5 80GB"))
    vars(device).update(wrong)
    with pytest.raises(
        LayoutError, match="Expected device to be a Device or text, got"
    ):
        Cluster(device, 8)
    del device.peaks
    with pytest.raises(
        LayoutError, match="Expected device to be a Device or text, got"
    ):
        Cluster(device, 8)


def test_an_unknown_or_ambiguous_name_is_refused_with_the_nearest():
    with pytest.raises(
        UnknownDevice,
        match=r"H100 PCIe 80GB, H100 SXM5 80GB.*trainplan.devices\(\) lists all",
    ):
        find("H100")
    with pytest.raises(UnknownDevice, match="got 'no such thing'"):
        find("no such thing")


@pytest.mark.parametrize("text", ["name,confidence\na\n", 'name,confidence\n"a'])
def test_a_damaged_table_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_tables, "DATA", tmp_path)
    (tmp_path / "damaged.csv").write_text(text)
    with pytest.raises(DataError, match=r"damaged\.csv"):
        csv_tables.rows("damaged")
    csv_tables.rows.cache_clear()
    with pytest.raises(DataError, match="Install trainplan again"):
        csv_tables.rows("missing")
