"""TensorFlow beside torch: None where it is missing, else on two devices of the CPU
with torch's threads, quietly.
"""

import subprocess
import sys

import pytest

from exercises.nb20.tensorflow_here import tensorflow
from tests.needs import needs


def test_a_missing_tensorflow_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert tensorflow.__wrapped__() is None


ASK = """
import importlib.util
import torch
torch.set_num_threads(3)
from exercises.nb20.tensorflow_here import tensorflow
tf = tensorflow()
assert tf is tensorflow()
names = [device.name for device in tf.config.list_logical_devices()]
print(names, tf.config.threading.get_intra_op_parallelism_threads())
# Triton crashes where TensorFlow was loaded first
importlib.util.find_spec("triton") and importlib.import_module("triton")
"""


@pytest.mark.complete
@needs("tensorflow")
def test_it_has_torchs_threads_and_the_cpu_as_two_devices_and_says_nothing():
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['/device:CPU:0', '/device:CPU:1'] 3\n"
    assert done.stderr == ""
