"""TensorFlow beside torch, if it is installed: on the same device, with as many
threads, and without what it logs.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import warnings
from typing import Any

from steptime import quiet_profiler


@functools.cache
def tensorflow() -> Any:
    """TensorFlow with torch's number of threads and the CPU as two devices, CPU:0 and
    CPU:1; None where it is missing.

    Where torch has a GPU, it takes one too, and its memory bit by bit; neither rounds
    products to TF32 then. TensorFlow raises RuntimeError where it is in use already
    with other settings.
    """
    import torch

    # read at the import: errors only
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if importlib.util.find_spec("triton"):
        # torch for CUDA brings Triton, whose library crashes when it is loaded after
        # TensorFlow's
        importlib.import_module("triton")
    try:
        # what it says before it has read that level
        with quiet_profiler(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tf: Any = importlib.import_module("tensorflow")
    except ImportError:
        return None
    tf.get_logger().setLevel("ERROR")
    gpus = tf.config.list_physical_devices("GPU") if torch.cuda.is_available() else []
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        # without it, nothing would be left for torch
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    torch.backends.cudnn.allow_tf32 = False
    tf.config.threading.set_intra_op_parallelism_threads(torch.get_num_threads())
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], two
    )
    return tf


def gpus(tf: Any) -> list[str]:
    """The GPUs that TensorFlow takes, such as "GPU:0"; none where it is missing."""
    if tf is None:
        return []
    return [gpu.name[-5:] for gpu in tf.config.list_logical_devices("GPU")]


def described(tf: Any) -> str:
    """Both frameworks' versions, and the GPUs that both take."""
    import torch

    versions = f"TensorFlow {tf.__version__}, PyTorch {torch.__version__}"
    return f"{versions}, GPUs for both: {', '.join(gpus(tf)) or 'none'}"


def sync() -> None:
    """Wait for what both frameworks have queued on GPUs."""
    tf = tensorflow()
    if gpus(tf):
        import torch

        torch.cuda.synchronize()
        tf.test.experimental.sync_devices()
