import csv
import dataclasses

import pytest

from kerneltrace import devices as device_module
from kerneltrace.errors import UnknownDevice
from labkit.core.errors import LabError
from labkit.core.paths import ROOT
from labkit.measure import catalog

DATA = device_module.GPUS.parent
NAMES = ROOT / "tests/data/driver_names.csv"  # its README.md says where it is from
# What is missing where a name has this word, else the last. Each stands in a row of
# data/gpu_kinds.csv.
MISSING = {
    "MIG": "A slice of a card (MIG)",
    "Laptop": "The maker of a laptop",
    "Max-Q Design": "The maker of a laptop",
    "Embedded": "The maker of a laptop",
    "GeForce MX": "The maker of a laptop",
    "GB10": "Its memory is the processor's too",
    "Thor": "Its memory is the processor's too",
    "Orin": "Its memory is the processor's too",
    "CMP": "It isn't sold for computing",
    "DRIVE": "It isn't sold for computing",
    "DGX Display": "It isn't sold for computing",
    "Matrox": "It isn't sold for computing",
    "PG50": "It isn't sold for computing",
    "": "Its row is still missing",
}


def rows_of(name):
    return list(csv.DictReader((DATA / name).read_text(encoding="utf-8").splitlines()))


# FP32 peak that isn't cores x 2 x boost clock, and why
FP32_EXCEPTIONS = {
    "AMD Instinct MI300X": (
        "163.4 is the matrix or dual-issue figure, twice the cores' product"
    ),
    "B200 SXM": (
        "the table prints 80; its number of SMs and its clock, recalled, give 74.5"
    ),
}

# Plausible bandwidth in GB/s by kind of memory: pin rate in Gbit/s x bus width in bits
# / 8, from the slowest to the fastest board of the kind. A stack of HBM is 1024 bits
# wide; GDDR boards have 128 to 512 bits, LPDDR5 128 or 256.
BANDWIDTH_GBS = {
    "GDDR5": (5 * 256 / 8, 8 * 512 / 8),
    "GDDR5X": (10 * 256 / 8, 12 * 384 / 8),
    "GDDR6": (14 * 128 / 8, 20 * 384 / 8),
    "GDDR6X": (19 * 192 / 8, 23 * 384 / 8),
    "GDDR7": (28 * 128 / 8, 32 * 512 / 8),
    "LPDDR5": (6.4 * 128 / 8, 6.4 * 256 / 8),
    "DDR4": (2.133 * 64 / 8, 3.2 * 256 / 8),
    "HBM": (1.0 * 2048 / 8, 6.4 * 2048 / 8),  # the TPU pages don't say which HBM
    "HBM2": (1.4 * 1024 / 8, 2.43 * 5120 / 8),
    "HBM2e": (2.4 * 4096 / 8, 3.6 * 8192 / 8),
    "HBM3": (4.8 * 4096 / 8, 6.4 * 8192 / 8),
    "HBM3e": (6.2 * 6144 / 8, 9.8 * 8192 / 8),
}

NO_CLOCK = ("B300 SXM", "GB300 (per Blackwell Ultra GPU)", "Jetson Orin Nano Super 8GB")


def test_the_table_is_read_in_si_units():
    t4 = catalog.find("T4")
    assert (t4.memory_bytes, t4.bandwidth_bytes_per_s, t4.boost_hz) == (
        16e9,
        320e9,
        1.59e9,
    )
    assert t4.vector_flop_per_s == {"float32": 8.141e12}
    assert t4.tensor_flop_per_s == {"float16": 65e12, "int8": 130e12}
    a100 = catalog.find("A100 SXM4 40GB")
    assert (a100.vector_flop_per_s["float64"], a100.tensor_flop_per_s["float64"]) == (
        9.7e12,
        19.5e12,
    )
    assert catalog.peak(a100, "float64") == 19.5e12
    assert catalog.peak(t4, "bfloat16") is None
    assert a100.interconnect_bytes_per_s == 600e9


def test_each_unread_column_exists_and_is_filled():
    for row in rows_of("gpus.csv"):
        for key in ("fields_from_memory", "fields_derived"):
            for column in filter(None, row[key].split(";")):
                assert column == "all" or row[column], (row["name"], column)


def test_unread_fields_are_named():
    assert catalog.find("T4").unread == {"float16", "int8", "pcie"}
    # cores are counted from SMs
    assert {"sms", "fp32_cores"} <= catalog.find("B200 SXM").unread
    recalled = catalog.find("GeForce RTX 3060 12GB")
    assert {
        "memory_bytes",
        "bandwidth_bytes_per_s",
        "float32",
        "tdp_w",
        "launch_price_usd",
    } <= recalled.unread
    names = {field.name for field in dataclasses.fields(catalog.Device)} | set(
        catalog.DTYPES
    )
    assert all(device.unread <= names for device in catalog.devices())


def test_fp32_is_cores_times_two_times_clock():
    for device in catalog.devices():
        printed = device.vector_flop_per_s.get("float32")
        if None in (printed, device.fp32_cores, device.boost_hz):
            assert device.family in ("TPU", "FPGA") or device.name in NO_CLOCK
            continue
        agrees = device.fp32_cores * 2 * device.boost_hz == pytest.approx(
            printed, rel=0.02
        )
        assert agrees != (device.name in FP32_EXCEPTIONS), device.name


def test_bandwidth_is_plausible_for_the_memory():
    for device in catalog.devices():
        low, high = BANDWIDTH_GBS[device.memory_type.split(" ")[0]]
        assert low * 0.98 <= device.bandwidth_bytes_per_s / 1e9 <= high * 1.02, (
            device.name
        )


def test_peaks_are_dense():
    # sparsity doubles a printed figure: 8-bit arithmetic alone is twice float16, and on
    # GeForce, where float16 with float32 accumulation runs at half rate, int8 is four
    # times
    for device in catalog.devices():
        float16 = device.tensor_flop_per_s.get("float16", float("inf"))
        int8_limit = 4 if device.family == "GeForce" else 2
        assert device.tensor_flop_per_s.get("int8", 0) <= 1.02 * int8_limit * float16
        assert device.tensor_flop_per_s.get("float8", 0) <= 1.02 * 2 * float16


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("Tesla T4", "T4"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-16GB", "Tesla V100 SXM2 16/32GB"),
        ("NVIDIA GH200 480GB", "GH200 (Hopper part), 96GB"),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("rtx 4090", "GeForce RTX 4090"),
        ("tpu-v5e CHIP", "TPU v5e (chip)"),
        ("2x Tesla T4", "T4"),
    ],
)
def test_names_are_found_as_drivers_print_them(reported, name):
    assert catalog.find(reported).name == name


# Names that CUDA reports and that no list of products has: slices of a card, and boards
# with the processor's memory.
OTHER_NAMES = [
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "2x NVIDIA GB10",
    "NVIDIA Thor",
    "Orin",
]


@pytest.mark.slow
def test_each_name_that_drivers_report_has_a_row_or_a_sentence_that_says_what_is_missing():
    reported = [
        row["name"]
        for row in csv.DictReader(NAMES.read_text(encoding="utf-8").splitlines())
    ]
    assert len(reported) == len(set(reported)) == 222
    with_row = [name for name in reported if missing(name) == ""]
    assert len(with_row) == 33
    assert not [
        name for name in with_row if any(kind in name for kind in list(MISSING)[:-1])
    ]
    assert {"Tesla T4", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"} <= set(
        with_row
    )
    for name in {*reported, *OTHER_NAMES} - set(with_row):
        assert missing(name).startswith(
            MISSING[next(kind for kind in MISSING if kind in name)]
        ), name


def missing(name):
    """What the catalogue says is missing for a name; empty where it has a row."""
    try:
        catalog.find(name)
    except UnknownDevice as error:
        return str(error).split("its peaks are unknown. ")[1]
    return ""


def test_memory_tells_cards_of_one_name_apart():
    # as CUDA reports it
    assert (
        catalog.find("NVIDIA GeForce RTX 3060", 12.62e9).name == "GeForce RTX 3060 12GB"
    )
    assert (
        catalog.find("NVIDIA GeForce RTX 3080", 10.5e9).name == "GeForce RTX 3080 10GB"
    )
    with pytest.raises(UnknownDevice, match="its peaks are unknown"):
        catalog.find("NVIDIA GeForce RTX 3060", 8.5e9)


def test_tables_mark_what_was_not_read():
    shown = catalog.table(
        [catalog.find("T4")], columns=("name", "float16", "float32", "bfloat16")
    )
    assert shown.rows == (("T4", "65.0 TFLOP/s*", "8.14 TFLOP/s", "unknown"),)
    assert "* recalled or derived" in str(shown)
    assert ">65.0 TFLOP/s*</td>" in shown._repr_html_()
    assert len(catalog.table().rows) == 56
    with pytest.raises(LabError, match="got 'price'"):
        catalog.table(columns=("price",))


def test_published_measurements_name_their_source():
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for path in (DATA / "published").glob("*.csv"):
        rows = rows_of(f"published/{path.name}")
        assert len(rows) >= 7, path.name
        assert path.name in readme
        assert all(row.get("source") or row["link"] for row in rows), path.name


def test_the_claims_are_complete():
    rows = rows_of("claims.csv")
    assert [row["id"] for row in rows] == [f"C{number:02d}" for number in range(1, 36)]
    assert all(
        row["claim"]
        and all(len(n) == 2 and n.isdigit() for n in row["notebooks"].split())
        for row in rows
    )
