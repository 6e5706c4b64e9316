"""Devices: the package's own, labkit's, and any object with the same facts."""

import dataclasses
import types

import pytest

from labkit.measure import catalog
from trainplan import Cluster, Layout, csv_tables, devices, find, model, step
from trainplan.errors import DataError, LayoutError, UnknownDevice

FACTS = (
    "name", "vendor", "architecture", "year", "sms", "boost_hz", "memory_bytes", "bandwidth_bytes_per_s",
    "interconnect_bytes_per_s", "pcie", "tdp_w", "vector_flop_per_s", "peaks",
)  # fmt: skip


def test_the_facts_are_those_of_the_catalogue():
    catalogued = catalog.devices()
    assert len(devices()) == len(catalogued)
    for own, other in zip(devices(), catalogued, strict=True):
        for fact in FACTS:
            assert (getattr(own, fact) or None) == (getattr(other, fact) or None), (own.name, fact)
        assert find(own.name) is own
        assert find(f"NVIDIA {own.name.upper()}".replace(" ", "-")) is own
        assert all(find(name).name == catalog.find(name).name for name in own.reported_as.split(";") if name)
    assert find("V100 SXM2 32GB").memory_bytes == catalog.find("V100 SXM2 32GB").memory_bytes == 32e9


@dataclasses.dataclass(frozen=True)
class Planned:
    """A device that is in no catalogue yet."""

    name: str = "H100 SXM5 80GB"
    vendor: str = "NVIDIA"
    architecture: str = "Hopper GH100"
    year: int = 2022
    sms: int = 132
    boost_hz: float | None = None
    memory_bytes: float = 80e9
    bandwidth_bytes_per_s: float = 3.35e12
    interconnect_bytes_per_s: float = 900e9
    pcie: str = "5.0 x16"
    tdp_w: float = 700.0

    peaks = types.MappingProxyType({"bfloat16": 989.4e12, "float32": 67e12})
    vector_flop_per_s = types.MappingProxyType({"float32": 67e12})


def test_any_object_with_the_facts_is_a_device():
    named = find("H100 SXM5 80GB")
    planned = dataclasses.replace(Planned(), boost_hz=named.boost_hz)
    without_hash = types.SimpleNamespace(**{name: getattr(planned, name) for name in FACTS})
    given = (catalog.find("H100 SXM5 80GB"), named, planned, without_hash)
    seconds = [step(model("Llama-3-8B"), Cluster(one, 8), Layout(8, zero=3), 8).seconds for one in given]
    assert seconds == pytest.approx([seconds[0]] * 4, rel=1e-3)
    assert seconds[0] == seconds[1]


@pytest.mark.parametrize(
    "wrong",
    [
        types.SimpleNamespace(**{name: getattr(Planned(), name) for name in FACTS[:-1]}),
        dataclasses.replace(Planned(), memory_bytes="80 GB"),
        dataclasses.replace(Planned(), name=None),
        object(),
    ],
)
def test_what_lacks_a_fact_is_refused(wrong):
    with pytest.raises(LayoutError, match="Expected device to be a Device or text, got"):
        Cluster(wrong, 8)


def test_an_unknown_or_ambiguous_name_is_refused_with_the_nearest():
    with pytest.raises(UnknownDevice, match=r"H100 PCIe 80GB, H100 SXM5 80GB.*trainplan.devices\(\) lists all"):
        find("H100")
    with pytest.raises(UnknownDevice, match="got 'no such thing'"):
        find("no such thing")


@pytest.mark.parametrize("text", ["name,confidence\na,b,c\n", "name,confidence\na\n", 'name,confidence\n"a'])
def test_a_damaged_table_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_tables, "DATA", tmp_path)
    (tmp_path / "damaged.csv").write_text(text)
    with pytest.raises(DataError, match=r"damaged\.csv"):
        csv_tables.rows("damaged")
    csv_tables.rows.cache_clear()
    with pytest.raises(DataError, match="Install trainplan again"):
        csv_tables.rows("missing")
