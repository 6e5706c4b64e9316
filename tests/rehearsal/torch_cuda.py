"""What a CUDA build of torch has in torch._C and a CPU build lacks; torch.cuda's own
Python does the rest.
"""

import ctypes
import os
import sys
import time
from types import SimpleNamespace

from tests.rehearsal import CARDS

CARD = os.environ.get("REHEARSAL_CARD", "T4")
GPUS = int(os.environ.get("REHEARSAL_GPUS", "1"))
NAME, CAPABILITY, BYTES, SMS, L2_BYTES, SHARED_BYTES = CARDS[CARD]
device = (
    ctypes.CDLL(os.environ["REHEARSAL_LIBRARY"])
    if "REHEARSAL_LIBRARY" in os.environ
    else None
)


class Stream:
    """torch._C._CudaStreamBase: an identity on a device. All work is done before a call
    returns.
    """

    made = 32

    def __new__(
        cls,
        priority=0,
        stream_id=None,
        device_index=None,
        device_type=1,
        stream_ptr=None,
        **_,
    ):
        import torch

        self = object.__new__(cls)
        if stream_id is None:
            Stream.made += 1
            stream_id = Stream.made
        index = device.exchange_device(-1) if device_index is None else device_index
        self.stream_id = self.cuda_stream = stream_id
        self.device_index = index
        self.device_type = device_type
        self.priority = priority
        self.device = torch.device("cuda", index)
        return self

    def __init__(self, *args, **kwargs):
        pass

    def __eq__(self, other):
        return (self.stream_id, self.device_index) == (
            other.stream_id,
            other.device_index,
        )

    def query(self):
        return True

    def is_capturing(self):
        return bool(device.is_recording())

    def synchronize(self):
        wait()


class Event:
    """torch._C._CudaEventBase, on the processor's clock."""

    def __new__(cls, enable_timing=False, **_):
        self = object.__new__(cls)
        # 0 s: not recorded yet
        self.timed = enable_timing
        self.at_s = 0.0
        self.cuda_event = 0
        return self

    def __init__(self, *args, **kwargs):
        pass

    def record(self, stream):
        self.at_s = real_clock()  # the GPU's own

    def wait(self, stream):
        pass

    def query(self):
        return True

    def synchronize(self):
        wait()

    def elapsed_time(self, end):
        if not (self.timed and end.timed and self.at_s and end.at_s):
            raise ValueError(
                "Both events must be recorded, and created with argument"
                " 'enable_timing=True'."
            )
        return 1e3 * (end.at_s - self.at_s)


class Graph:
    """torch._C._CUDAGraph: replays the operators of its recording on the same memory. A
    recording computes, too.
    """

    def __new__(cls, keep_graph=False):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def capture_begin(self, pool=None, capture_error_mode="global"):
        self.number = device.begin_graph()

    def capture_end(self):
        device.end_graph()

    def replay(self):
        device.replay_graph(self.number)

    def reset(self):
        pass

    def pool(self):
        return (0, 1)


def check_not_recording():
    if device.is_recording():
        raise RuntimeError(
            "CUDA error: operation not permitted when stream is capturing"
        )


real_clock = time.perf_counter


def clock():
    """time.perf_counter of a CPU that goes on while the GPU works: without the time of
    work that it hasn't waited for.

    A reading of a cell that forgets to wait is far too short.
    """
    return real_clock() - 1e-9 * device.queued()


def wait():
    """Wait for all that is queued."""
    check_not_recording()
    device.wait_for_all()


def exchange(index):
    """Make a GPU the current one, none for a negative index; the one before it."""
    if index >= GPUS:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return device.exchange_device(index)


def record_history(enabled, context=None, stacks="python", *more):
    """What Windows and Linux on aarch64 refuse, refused here too: frames of C++ are
    read on x86-64 Linux alone.
    """
    if enabled and stacks == "all":
        raise RuntimeError(
            "record_context_cpp is not supported on non-linux non-x86_64 platforms"
        )


def properties(index):
    if not 0 <= index < GPUS:
        raise RuntimeError("CUDA error: invalid device ordinal")
    major, minor = CAPABILITY
    return SimpleNamespace(
        name=NAME,
        major=major,
        minor=minor,
        total_memory=BYTES,
        multi_processor_count=SMS,
        L2_cache_size=L2_BYTES,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=SHARED_BYTES,
        warp_size=32,
        max_threads_per_multi_processor=1024,
        regs_per_multiprocessor=65536,
        is_integrated=0,
        gcnArchName="",
    )


def memory_stats(index):
    held = device.held_bytes(index)
    peak = device.peak_bytes(index)
    all_of = {"current": held, "peak": peak, "allocated": peak, "freed": peak - held}
    return {name: {"all": all_of} for name in ("allocated_bytes", "reserved_bytes")}


def fill(c):
    """Put into torch._C what torch.cuda looks for when it is imported."""
    for name in (
        "held_bytes",
        "peak_bytes",
        "exchange_stream",
        "begin_graph",
        "queued",
    ):
        getattr(device, name).restype = ctypes.c_int64
    device.exchange_stream.argtypes = ctypes.c_int, ctypes.c_int64
    device.queue.argtypes = (ctypes.c_int64,)
    mode = SimpleNamespace(waits=0, forked=False)

    def init():
        os.register_at_fork(after_in_child=lambda: setattr(mode, "forked", True))
        cuda = sys.modules["torch.cuda"]
        cuda._get_device_properties = properties
        cuda.default_generators = tuple(
            sys.modules["torch"].Generator() for _ in range(GPUS)
        )

    def set_waits(waits):
        mode.waits = waits
        device.set_waits(waits)

    def set_stream(stream_id, device_index, device_type):
        device.exchange_device(device_index)
        device.exchange_stream(device_index, stream_id)

    members = {
        "_CudaStreamBase": Stream,
        "_CudaEventBase": Event,
        "_CUDAGraph": Graph,
        "_has_cuda": True,
        "_cuda_CUDAAllocator_AllocatorState": object,
        "_graph_pool_handle": lambda: (0, 1),
        "_cuda_isCurrentStreamCapturing": lambda: bool(device.is_recording()),
        "_cuda_getDeviceCount": lambda: GPUS,
        "_cuda_isInBadFork": lambda: mode.forked,
        "_cuda_init": init,
        "_cuda_getDevice": lambda: device.exchange_device(-1),
        # A function for each: the compiler has a handler for each of these, and none
        # for one that it knows already.
        "_cuda_setDevice": lambda i: exchange(i),
        "_cuda_exchangeDevice": lambda i: exchange(i),
        "_cuda_maybeExchangeDevice": lambda i: exchange(i),
        "_cuda_synchronize": wait,
        "_cuda_getCurrentStream": lambda i: (device.exchange_stream(i, -1), i, 1),
        "_cuda_getCurrentRawStream": lambda i: device.exchange_stream(i, -1),
        "_cuda_getCompiledVersion": lambda: 12080,
        "_cuda_hasPrimaryContext": lambda i: True,
        "_cuda_getDefaultStream": lambda i: (0, i, 1),
        "_cuda_setStream": set_stream,
        "_cuda_getArchFlags": lambda: "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
        "_cuda_memoryStats": memory_stats,
        "_cuda_resetPeakMemoryStats": lambda i: device.reset_peak(i),
        "_cuda_emptyCache": lambda: None,
        "_host_emptyCache": lambda: None,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_set_sync_debug_mode": set_waits,
        "_cuda_get_sync_debug_mode": lambda: mode.waits,
        "_cuda_record_memory_history": record_history,
        "_cuda_memorySnapshot": lambda pool: {"segments": [], "simulated": True},
        "_cudart": SimpleNamespace(
            cudaMemGetInfo=lambda i: (BYTES - device.held_bytes(i), BYTES),
            cudaProfilerStart=lambda: 0,
            cudaProfilerStop=lambda: 0,
            cudaError=SimpleNamespace(success=0),
        ),
        "_nvtx": SimpleNamespace(
            rangePushA=lambda message: 0, rangePop=lambda: 0, markA=lambda message: None
        ),
        "_nccl_version": lambda: 22809,
        "_nccl_version_suffix": lambda: b"",
        "_scatter": scatter,
        "_gather": lambda tensors, axis, to=None: concatenated(tensors, axis, to),
        "_broadcast_coalesced": lambda tensors, to, size: [
            [t.to(f"cuda:{i}") for t in tensors] for i in to
        ],
    }
    for name, member in members.items():
        setattr(c, name, member)


def scatter(tensor, to, sizes, axis, streams):
    return [
        part.to(f"cuda:{i}")
        for part, i in zip(tensor.chunk(len(to), axis), to, strict=False)
    ]


def concatenated(tensors, axis, to):
    import torch

    return torch.cat([tensor.to(f"cuda:{to or 0}") for tensor in tensors], axis)


def finish(torch):
    """What can be patched only once torch is there."""
    torch.version.cuda = "12.8"
    usual = torch.UntypedStorage.resize_

    def resize_(self, n):
        if self.device.type != "cuda":
            return usual(self, n)
        whole = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        torch.ops.rehearsal.resize_storage(whole, n)
        return self

    torch.UntypedStorage.resize_ = resize_
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device(
        "cuda"
    )
    torch.accelerator.current_stream = lambda device=None: torch.cuda.current_stream(
        device
    )
    torch.Tensor.record_stream = lambda self, stream: None
    torch.cuda.memory_summary = lambda **options: (
        "the allocator's statistics would stand here"
    )
