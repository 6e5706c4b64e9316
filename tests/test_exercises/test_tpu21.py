"""Notebook 21 where JAX finds a TPU: a stand-in for it lies before the CPU's devices,
and all work runs on the CPU.
"""

import subprocess
import sys

import pytest

from labkit.core import results
from labkit.core.paths import ROOT
from teaching import record
from tests.needs import needs

pytestmark = [pytest.mark.slow, pytest.mark.complete, needs("jax")]

RUN = """
import sys
from types import SimpleNamespace
import jax
import labkit as lab
from tests.helpers import code_cells, notebook_paths

tpu, devices, put = SimpleNamespace(platform="tpu", device_kind="TPU v5 lite"), jax.devices, jax.device_put
given, asked, pick = [], [], lab.pick
jax.devices = lambda kind=None: devices(kind) if kind else [tpu, *devices()]
jax.device_put = lambda x, where: given.append(where) or put(x, devices("cpu")[0] if where is tpu else where)
lab.pick = lambda **sizes: asked.append(sizes) or pick(**sizes)
(path,) = [path for path in notebook_paths() if path.name.startswith("21_")]
names = {"__name__": "__main__", "display": lambda *shown: None}
for source in code_cells(path):
    exec(source, names)
    if "21.2 gradients, " in source:
        break
assert given == [tpu, tpu], given
assert {"ci": 128, "cpu": 8192, "gpu": 8192} in asked, asked
"""


def test_what_a_tpu_did_is_measured_there_and_recorded_by_its_name(
    home, tmp_path, monkeypatch
):
    monkeypatch.setenv("LABKIT_PROFILE", "smoke")
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert record._keep(home / "results.jsonl", tmp_path / "machine.jsonl", "21") > 0
    kept = {entry.key: entry for entry in results.read(tmp_path / "machine.jsonl")[0]}
    product, step = (
        kept[f"21.2 {what}, TPU v5 lite"] for what in ("a product", "gradients")
    )
    assert (product.unit, product.size, product.dtype, product.origin) == (
        "FLOP/s",
        "n = 128",
        "bfloat16",
        "measured",
    )
    assert (step.unit, step.size, step.dtype, step.origin) == (
        "images/s",
        "64 images",
        "float32",
        "measured",
    )
