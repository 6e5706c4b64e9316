"""The table is plausible, and each name gets its row or the reason why it has none."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpufacts
from gpufacts import table

HERE = Path(__file__).parent
DRIVER_NAMES = HERE / "data" / "driver_names.csv"  # docs/validation.md: where from
DEVICES = gpufacts.devices()

# Rows whose float32 peak isn't cores x 2 x boost clock; docs/validation.md says why.
OTHER_FLOAT32 = {"AMD Instinct MI300X", "B200 SXM"}

# GB/s from the slowest to the fastest board of a kind of memory: Gbit/s of a pin x bits
# of the bus / 8. A stack of HBM is 1024 bits wide; GDDR boards have 128 to 512 bits.
BANDWIDTH_GBS = {
    "GDDR5": (5 * 256 / 8, 8 * 512 / 8),
    "GDDR5X": (10 * 256 / 8, 12 * 384 / 8),
    "GDDR6": (14 * 128 / 8, 20 * 384 / 8),
    "GDDR6X": (19 * 192 / 8, 23 * 384 / 8),
    "GDDR7": (28 * 128 / 8, 32 * 512 / 8),
    "LPDDR5": (6.4 * 128 / 8, 6.4 * 256 / 8),
    "LPDDR5X": (8.5 * 256 / 8, 9.6 * 256 / 8),
    "DDR4": (2.133 * 64 / 8, 3.2 * 256 / 8),
    "HBM": (1.0 * 2048 / 8, 6.4 * 2048 / 8),  # TPU pages don't say which HBM
    "HBM2": (1.4 * 1024 / 8, 2.43 * 5120 / 8),
    "HBM2e": (2.4 * 4096 / 8, 3.6 * 8192 / 8),
    "HBM3": (4.8 * 4096 / 8, 6.4 * 8192 / 8),
    "HBM3e": (6.2 * 6144 / 8, 9.8 * 8192 / 8),
}


def test_each_device_has_a_name_of_its_own_and_a_source():
    assert len(DEVICES) >= 57
    assert len({device.name for device in DEVICES}) == len(DEVICES)
    assert all(device.source for device in DEVICES)


def test_units_are_si():
    a100 = gpufacts.find("A100 SXM4 40GB")
    assert a100.memory_bytes == 40e9
    assert a100.boost_hz == 1.41e9
    assert a100.interconnect_bytes_per_s == 600e9
    assert a100.vector_flop_per_s["float64"] == 9.7e12
    assert a100.peaks["float64"] == a100.tensor_flop_per_s["float64"] == 19.5e12


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_a_row_agrees_with_itself(device):
    float32 = device.vector_flop_per_s.get("float32")
    if float32 and device.fp32_cores and device.boost_hz:
        product = device.fp32_cores * 2 * device.boost_hz
        assert (product == pytest.approx(float32, rel=0.02)) != (
            device.name in OTHER_FLOAT32
        )
    lowest, highest = BANDWIDTH_GBS[device.memory_type.split(" ")[0]]
    assert 0.98 * lowest <= device.bandwidth_bytes_per_s / 1e9 <= 1.02 * highest
    peaks = device.tensor_flop_per_s
    float16 = max(peaks.get("float16", 0), peaks.get("bfloat16", 0)) or float("inf")
    int8_limit = 4 if device.family == "GeForce" else 2
    assert peaks.get("int8", 0) <= 1.02 * int8_limit * float16
    assert peaks.get("float8", 0) <= 1.02 * 2 * float16
    if device.vendor == "NVIDIA" and "bfloat16" in device.peaks:
        assert device.peaks["bfloat16"] == device.peaks["float16"]


def test_what_was_not_read_is_named():
    assert gpufacts.find("T4").unread == {"float16", "int8", "pcie"}
    assert {"sms", "fp32_cores"} <= gpufacts.find("B200").unread
    recalled = gpufacts.find("GeForce RTX 3060 12GB")
    assert {"memory_bytes", "bandwidth_bytes_per_s", "float32"} <= recalled.unread


def test_the_clocks_of_the_peaks():
    h100 = gpufacts.find("H100 SXM5 80GB")
    assert "tensor cores at 1,830 MHz" in h100.clocks
    assert h100.clocks.endswith("boost clock 1,980 MHz")
    assert gpufacts.find("TPU v5p").clocks == ""


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_each_device_is_found_by_its_own_name_and_the_driver_s(device):
    for name in (device.name, *filter(None, device.reported_as.split(";"))):
        assert gpufacts.find(name) == device
        assert gpufacts.find(f"2x {name.lower()}").assumed == ""


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),
        ("Tesla V100-SXM2-16GB", "Tesla V100 SXM2 16GB"),
        ("8x NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("rtx4090", "GeForce RTX 4090"),
        ("tpu-v5e", "TPU v5e (chip)"),
        ("NVIDIA A800-SXM4-80GB", "A800 SXM4 80GB"),
        ("AMD Instinct MI300X OAM", "AMD Instinct MI300X"),
        ("Gaudi3", "Gaudi 3"),
        ("Intel Gaudi 2", "Gaudi 2"),
        ("AWS Trainium 2", "Trainium 2"),
        ("NVIDIA H20", "H20 SXM 96GB"),
        ("DGX Spark", "GB10"),
        ("GB200 NVL72", "GB200 (per Blackwell GPU)"),
    ],
)
def test_a_whole_name_in_any_spelling_is_found(name, row):
    assert gpufacts.find(name).name == row
    assert gpufacts.find(name).assumed == ""


@pytest.mark.parametrize(
    ("name", "row", "others"),
    [
        ("H100", "H100 SXM5 80GB", "H100 PCIe 80GB, H100 NVL"),
        ("A100", "A100 SXM4 80GB", "A100 SXM4 40GB"),
        ("V100", "Tesla V100 SXM2 32GB", "Tesla V100 SXM2 16GB"),
        ("a100-40g", "A100 SXM4 40GB", "A100 PCIe 40GB"),
        ("H100 SXM", "H100 SXM5 80GB", ""),
        ("4090", "GeForce RTX 4090", ""),
        ("1x A100 (40 GB SXM4)", "A100 SXM4 40GB", ""),
        ("8x B200 (180 GB SXM6)", "B200 SXM", ""),
        ("1x A10 (24 GB PCIe)", "A10", ""),
        ("nvidia-h200-141gb", "H200 SXM", ""),
        ("H100 94GB", "H100 NVL", ""),
        ("gpu_8x_h100_sxm5", "H100 SXM5 80GB", ""),
        ("8xH100", "H100 SXM5 80GB", "H100 NVL"),
        ("H100 x 8", "H100 SXM5 80GB", "H100 NVL"),
        ("2x4090", "GeForce RTX 4090", ""),
        ("2080Ti", "GeForce RTX 2080 Ti (FE)", ""),
        ("A100:4", "A100 SXM4 80GB", "A100 PCIe 40GB"),
        ("DGX H100", "H100 SXM5 80GB", "H100 NVL"),
        ("RTX PRO 6000 Server", "RTX PRO 6000 Blackwell Server Edition", ""),
        ("GH200", "GH200 (Hopper part), 141GB", "GH200 (Hopper part), 96GB"),
    ],
)
def test_a_short_name_gives_the_usual_build_and_says_so(name, row, others):
    device = gpufacts.find(name)
    assert device.name == row
    assert device.assumed.startswith(f"{name!r} is taken as {row}")
    assert others in device.assumed
    assert device == gpufacts.find(row)
    assert gpufacts.matching(name)[0] == device


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("p5.48xlarge", "H100 SXM5 80GB"),
        ("ml.p4d.24xlarge", "A100 SXM4 40GB"),
        ("trn2.48xlarge", "Trainium 2"),
        ("a3-ultragpu-8g", "H200 SXM"),
        ("nvidia-tesla-a100", "A100 SXM4 40GB"),
        ("Standard_ND96isr_H100_v5", "H100 SXM5 80GB"),
        ("v5litepod-16", "TPU v5e (chip)"),
    ],
)
def test_an_instance_of_a_cloud_gives_what_it_has_and_says_so(name, row):
    assert gpufacts.find(name) == gpufacts.find(row)
    assert gpufacts.find(name).assumed == f"{name!r} has {row}."
    assert gpufacts.find(name).instance == name
    assert gpufacts.find(row).instance == ""
    assert gpufacts.matching(name) == [gpufacts.find(row)]


def test_each_instance_s_device_has_a_row():
    for instance in table.read("instances.csv"):
        assert gpufacts.find(instance["device"]).name == instance["device"]
        assert instance["source"]


@pytest.mark.parametrize(
    "name",
    [
        "c5.xlarge",
        "Standard_NC24s_v3",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "GeForce RTX 4060 Ti",
        "RTX 6000",
        "L40",
        "H20-3e",
        "V100 PCIe",
        "A800 40GB",
        "RTX 3080 12GB",
        "3090Ti",
        "H200 NVL",
        "MI300A",
        "Orin",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "RTX",
        "",
    ],
)
def test_a_similar_card_is_never_given(name):
    with pytest.raises(gpufacts.UnknownDevice, match="its peaks are unknown"):
        gpufacts.find(name)
    assert gpufacts.matching(name) == []


@pytest.mark.parametrize(
    ("name", "memory_bytes", "reason"),
    [
        ("RTX 6000", None, "It fits several chips"),
        ("RTX", None, "It fits several chips"),
        ("RTX 2080", None, "its row is still missing"),
        ("RTX 9999", None, "its row is still missing"),
        ("NVIDIA GeForce RTX 3060", 8.5e9, "its row is still missing"),
        ("", None, "its row is still missing"),
    ],
)
def test_a_name_of_several_chips_is_told_from_a_missing_row(name, memory_bytes, reason):
    with pytest.raises(gpufacts.UnknownDevice, match=reason):
        gpufacts.find(name, memory_bytes)


def test_memory_tells_builds_apart():
    # as CUDA counts it
    assert gpufacts.find("NVIDIA GeForce RTX 3060", 12.62e9).memory_bytes == 12e9
    assert gpufacts.find("V100", 16.9e9).name == "Tesla V100 SXM2 16GB"
    with pytest.raises(gpufacts.UnknownDevice):
        gpufacts.find("NVIDIA GeForce RTX 3060", 8.5e9)
    with pytest.raises(gpufacts.UnknownDevice, match=r"got 'A100' with 60 GB; its"):
        gpufacts.find("A100", 60e9)
    with pytest.raises(TypeError, match="Expected memory_bytes to be a number or None"):
        gpufacts.find("A100", "80 GB")


def test_each_name_of_a_driver_has_a_row_or_a_reason():
    with DRIVER_NAMES.open(encoding="utf-8", newline="") as file:
        names = [row["name"] for row in csv.DictReader(file)]
    reasons = [row["missing"] for row in table.read("gpu_kinds.csv")]
    refusals = {}
    for name in names:
        try:
            gpufacts.find(name)
        except gpufacts.UnknownDevice as error:
            refusals[name] = str(error)
    assert len(names) - len(refusals) == 43
    for name, refusal in refusals.items():
        assert any(reason in refusal for reason in reasons), name
    laptops = [name for name in names if re.search("Laptop GPU|Max-Q Design", name)]
    assert laptops
    for name in laptops:
        assert "The maker of a laptop" in refusals[name]


@pytest.mark.parametrize(
    "name", ["4090 laptop", "RTX 4090 Laptop", "4090 mobile", "4060 Max-Q", "GTX 980M"]
)
def test_a_laptops_gpu_gets_its_reason_however_it_is_typed(name):
    with pytest.raises(gpufacts.UnknownDevice, match="The maker of a laptop"):
        gpufacts.find(name)


def test_a_rate_of_ten_petaflop_per_s_is_printed_as_a_plain_number():
    printed = dict(gpufacts.facts(gpufacts.find("GB200")))
    assert printed["float4, dense"] == "10,000 TFLOP/s"


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match="Nearest names: GeForce RTX 4080"):
        gpufacts.find("GeForce RTX 4080 Ti")
    with pytest.raises(TypeError, match="the name of a device or a Device, got int"):
        gpufacts.find(4090)


def test_a_device_of_your_own_is_itself_and_has_no_negative_facts():
    mine = gpufacts.Device(name="mine", source="measured", sms=4)
    assert gpufacts.find(mine) is mine
    with pytest.raises(ValueError, match="Expected sms to be a finite number"):
        gpufacts.Device(name="mine", source="measured", sms=-4)
    with pytest.raises(ValueError, match="Expected float32 to be a finite number"):
        gpufacts.Device(name="mine", source="", vector_flop_per_s={"float32": "fast"})


def test_a_peak_that_no_source_gives_is_none_and_an_unknown_format_is_refused():
    t4 = gpufacts.find("T4")
    assert gpufacts.peak(t4, "float16") == 65e12
    assert gpufacts.peak(t4, "bfloat16") is None
    with pytest.raises(gpufacts.UnknownDtype, match="got 'bfloat'"):
        gpufacts.peak(t4, "bfloat")


@pytest.mark.parametrize(
    "text", ["", "name,source\nT4\n", None], ids=["empty", "cells", "missing"]
)
def test_a_damaged_table_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "DATA", tmp_path)
    if text is not None:
        (tmp_path / "gpus.csv").write_text(text, encoding="utf-8")
    with pytest.raises(RuntimeError, match="Install gpufacts again"):
        table.devices.__wrapped__()


def run(*words):
    command = [sys.executable, "-m", "gpufacts", *words]
    return subprocess.run(
        command, cwd=HERE.parents[1], capture_output=True, text=True, check=False
    )


def test_the_command_prints_a_row_the_table_or_a_refusal():
    h100 = run("H100")
    assert "'H100' is taken as H100 SXM5 80GB" in h100.stdout
    assert re.search(r"bfloat16, dense +989\.4 TFLOP/s\n", h100.stdout)
    assert re.search(r"source +stas00/ml-engineering", h100.stdout)
    assert len(run().stdout.splitlines()) == len(DEVICES)
    unknown = run("RTX", "4080", "Ti")
    assert unknown.returncode == 2
    assert "Nearest names: GeForce RTX 4080" in unknown.stderr


@pytest.mark.parametrize("words", [(), ("H100",), ("--help",)])
def test_a_reader_that_stops_is_no_error(words):
    command = [sys.executable, "-m", "gpufacts", *words]
    with subprocess.Popen(
        command,
        cwd=HERE.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 0


def test_the_readme_s_example_runs():
    text = (HERE.parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"(?ms)^```python\n(.*?)^```$", text)
    command = [sys.executable, "-c", example]
    done = subprocess.run(
        command, cwd=HERE.parents[1], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"A100 SXM4 80GB: 15\d FLOP .*\nMFU 56%\n", done.stdout)
