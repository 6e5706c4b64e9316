"""TensorFlow beside torch, if it is installed: on the CPU, with as many threads, and without what it logs."""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from typing import Any

from steptime.chrome_trace import quiet_profiler


@functools.cache
def tensorflow() -> Any:
    """TensorFlow with torch's number of threads and the CPU as two devices, CPU:0 and CPU:1; None where it is missing.

    GPUs are hidden from it. TensorFlow raises RuntimeError where it is in use already with other settings.
    """
    import torch

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read at the import: errors only
    try:
        with quiet_profiler(), warnings.catch_warnings():  # what it says before it has read that level
            warnings.simplefilter("ignore")
            tf: Any = importlib.import_module("tensorflow")
    except ImportError:
        return None
    tf.get_logger().setLevel("ERROR")
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(torch.get_num_threads())
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    return tf
