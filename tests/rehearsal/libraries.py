"""What the pretend GPU changes in other libraries, each right after it has been
imported.
"""

import functools
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from tests.rehearsal import torch_cuda
from tests.rehearsal.torch_cuda import CAPABILITY, GPUS, NAME

WITHOUT = os.environ.get("REHEARSAL_WITHOUT", "").split(",")
# What numba says under an older driver, by github.com/NVIDIA/numba-cuda/issues/163;
# NCCL in a container of Docker's, by github.com/hiyouga/LlamaFactory/issues/7233.
OLD_DRIVER = (
    "[222] Call to cuLinkAddData results in CUDA_ERROR_UNSUPPORTED_PTX_VERSION\nptxas"
    " application ptx input, line 9; fatal   : Unsupported .version 8.7; current"
    " version is '8.4'"
)
NO_ROOM = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled"
    " system error (run with NCCL_DEBUG=INFO for details), NCCL version"
    " 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library"
    " call failed or device error. \nLast error:\nError while creating shared memory"
    " segment /dev/shm/nccl-LeXlEJ (size 9637888)"
)
# rows of notebook 02, which shows what such a reading gives
UNWAITED = ("clock did not wait",)
TRACED_PROGRAMS = 4
# of a launch and of its arrays; a larger one computes nothing
TRACED_THREADS = 2**16
TRACED_NUMBERS = 2**14


def results(module):
    """Every number of a rehearsal is simulated, whatever it calls itself."""
    usual = module.Results.append

    def append(self, entry):
        if isinstance(entry, module.Measurement):
            entry = replace(
                entry, origin="simulated", machine=f"rehearsal of {entry.machine}"
            )
        elif isinstance(entry, module.Verdict):
            entry = replace(entry, machine=f"rehearsal of {entry.machine}")
        usual(self, entry)

    module.Results.append = append


def readings(module):
    """A reading that ends before the work that it queued is refused: on a GPU it would
    be far too short, unnoticed.
    """
    usual = module.Series.seconds

    def seconds(self, repeats):
        before_ns = torch_cuda.device.queued()
        found = usual(self, repeats)
        left_ns = torch_cuda.device.queued() - before_ns
        if left_ns > 0 and self.label not in UNWAITED:
            raise RuntimeError(
                f"{self.label!r} takes {found:.2g} s without the {1e-9 * left_ns:.2g} s"
                " of work that it has queued: wait for it with sync=machine.sync."
            )
        return found

    module.Series.seconds = seconds


def chrome_trace(module):
    """A launch and a kernel for each operator; with "cupti" missing none, as where the
    profiler can't see the GPU.
    """
    usual = module.profiled

    def profiled(work, path, *, cuda=False, **options):
        events = usual(work, path, **options)
        return events + kernels(events) if cuda and "cupti" not in WITHOUT else events

    module.profiled = profiled


def kernels(events):
    """Events of the GPU as Kineto writes them, for a profile of the CPU."""
    operators = [
        e
        for e in events
        if e.get("cat") == "cpu_op"
        and e["name"].startswith("aten::")
        and e["ph"] == "X"
    ]
    made = []
    free_us = 0.0
    for number, e in enumerate(sorted(operators, key=lambda e: e["ts"]), 10**6):
        name = e["name"].removeprefix("aten::")
        if name in (
            "view",
            "t",
            "transpose",
            "empty",
            "detach",
            "reshape",
            "to",
            "linear",
            "conv2d",
        ):
            continue  # these launch nothing
        call, kind = (
            ("cudaMemcpyAsync", "gpu_memcpy")
            if name == "copy_"
            else ("cudaLaunchKernel", "kernel")
        )
        call = "cudaStreamSynchronize" if name == "_local_scalar_dense" else call
        host = {
            "pid": e["pid"],
            "tid": e["tid"],
            "ts": e["ts"] + 0.1,
            "dur": min(1.0, e["dur"]),
        }
        free_us = max(free_us, e["ts"] + 2)
        there = {"pid": 0, "tid": 7, "ts": free_us, "dur": e["dur"]}
        arguments = {"correlation": number, "device": 0, "stream": 7}
        made.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": call,
                "args": {"correlation": number},
                **host,
            }
        )
        title = (
            "Memcpy HtoD (Pageable -> Device)"
            if kind == "gpu_memcpy"
            else f"void {name}_kernel<float>"
        )
        made.append({"ph": "X", "cat": kind, "name": title, "args": arguments, **there})
        free_us += e["dur"]
    return made


def inductor(module):
    """No kernels are written: the graph runs operator by operator."""
    from torch._dynamo.backends.debugging import aot_eager

    module.compile_fx = lambda model, inputs, **options: aot_eager(model, inputs)


def fusion(module):
    """What is counted in inductor's text, of which there is none."""

    def simulated(fn, *args):
        total = module.operators(lambda: fn(*args)).total
        return module.Fusion(
            total, 1, 0, ("triton_simulated",), "# Triton's text would stand here"
        )

    module.fusion = simulated


def nccl(module):
    """NCCL is gloo on the memory of the tensors (over_gloo in device.cpp)."""
    if GPUS < 2:
        return
    from torch._C._distributed_c10d import ProcessGroupGloo

    class ProcessGroupNCCL(ProcessGroupGloo):
        Options = SimpleNamespace  # type: ignore[assignment]

        def __init__(self, store, rank, size, options=None):
            if "shm" in WITHOUT:
                raise sys.modules["torch.distributed"].DistBackendError(NO_ROOM)
            super().__init__(store, rank, size, module.default_pg_timeout)

    module.ProcessGroupNCCL = ProcessGroupNCCL
    module._NCCL_AVAILABLE = True
    module.is_nccl_available = sys.modules["torch.distributed"].is_nccl_available = (
        lambda: True
    )
    module._get_default_timeout = lambda backend: module.default_pg_timeout


def tiles(module):
    """Kernels of Triton can be launched: their first programs run in the interpreter.
    Its compiler is not there.
    """
    if "triton" in WITHOUT:
        return

    class Launched(module.Jit):
        def __getitem__(self, grid):
            def launch(*args, **named):
                host = [arg.cpu() if hasattr(arg, "cpu") else arg for arg in args]
                module.trace(self, grid, *host, programs=TRACED_PROGRAMS, **named)
                [
                    arg.copy_(there)
                    for arg, there in zip(args, host, strict=True)
                    if hasattr(arg, "cpu")
                ]

            return launch

    module.tl = module.Language()
    module.triton = SimpleNamespace(
        jit=Launched,
        cdiv=lambda a, b: -(-a // b),
        next_power_of_2=module.next_power_of_2,
        Config=module.triton.Config,
        autotune=lambda configs, **_: lambda kernel: Launched(kernel, configs),
        runtime="simulated",
    )


def tensorflow(module):
    """A CPU build sees a GPU for each of torch's: what is put there lies on the CPU,
    and a strategy's are CPU:0 and 1.

    Raises RuntimeError where a GPU is used whose memory TensorFlow would take whole.
    """
    config = module.config
    kept = {"grows": set(), "seen": None}
    physical = [
        config.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(GPUS)
    ]
    usual = {
        name: getattr(config, name)
        for name in ("list_physical_devices", "list_logical_devices")
    }

    def list_logical_devices(kind=None):
        found = usual["list_logical_devices"](kind) if kind != "GPU" else []
        seen = physical if kept["seen"] is None else kept["seen"]
        if set(seen) - kept["grows"]:
            raise RuntimeError(
                "TensorFlow would take all memory of the GPU: set_memory_growth."
            )
        gpus = [
            config.LogicalDevice(gpu.name.replace("physical_", ""), "GPU")
            for gpu in seen
        ]
        return found + gpus if kind in (None, "GPU") else found

    def on_cpus(name):
        return name.replace("GPU", "CPU")

    usual_set = config.set_visible_devices
    config.list_logical_devices = list_logical_devices
    config.list_physical_devices = lambda kind=None: (
        physical if kind == "GPU" else usual["list_physical_devices"](kind)
    )
    config.set_visible_devices = lambda devices, kind=None: (
        kept.update(seen=devices) if kind == "GPU" else usual_set(devices, kind)
    )
    config.experimental.set_memory_growth = lambda gpu, on: (
        kept["grows"].add(gpu) if on else None
    )
    for name, taken in (
        ("MirroredStrategy", lambda names: list(map(on_cpus, names))),
        ("OneDeviceStrategy", on_cpus),
    ):
        strategy = getattr(module.distribute, name)
        setattr(
            module.distribute,
            name,
            lambda names, strategy=strategy, taken=taken: strategy(taken(names)),
        )


class DeviceArray:
    """What numba's to_device gives: an array that only kernels and copy_to_host may
    look at.
    """

    def __init__(self, host):
        self.host = host
        for name in ("shape", "dtype", "size", "ndim", "strides", "nbytes"):
            setattr(self, name, getattr(host, name))

    def copy_to_host(self, ary=None, stream=0):
        torch_cuda.wait()
        if ary is None:
            return self.host.copy()
        ary[...] = self.host
        return ary


def host_of(x):
    """The memory of an array of the GPU, as NumPy sees it."""
    import torch

    if isinstance(x, DeviceArray):
        return x.host
    if isinstance(x, torch.Tensor):
        x.__cuda_array_interface__  # noqa: B018 - raises where numba does: on the CPU, or with a gradient
        return torch.ops.rehearsal.as_cpu(x.detach()).numpy()
    return x.host if hasattr(x, "__cuda_array_interface__") else x


def launch(kernel, grid, block, *args):
    """Run a launch in labkit's tracer, if it is small."""
    from kerneltrace import trace

    sizes = [
        *(grid if isinstance(grid, tuple) else (grid,)),
        *(block if isinstance(block, tuple) else (block,)),
    ]
    if not all(isinstance(size, int | np.integer) and size > 0 for size in sizes):
        raise TypeError(f"a launch takes whole numbers above 0, got {grid} and {block}")
    if np.prod(block) > 1024:
        raise RuntimeError(f"CUDA_ERROR_INVALID_VALUE: a block of {block}")
    if "new driver" in WITHOUT:
        raise RuntimeError(OLD_DRIVER)
    given = [host_of(arg) for arg in args]
    if np.prod(sizes, dtype=float) <= TRACED_THREADS and all(
        np.size(one) <= TRACED_NUMBERS for one in given
    ):
        began_s = torch_cuda.real_clock()
        trace(kernel, grid, block, *given, blocks="all")
        torch_cuda.device.queue(int(1e9 * (torch_cuda.real_clock() - began_s)))


def numba_cuda(module):
    """Launches are traced, and arrays stay in main memory."""
    from numba.cuda.dispatcher import CUDADispatcher

    def configured(kernel, sizes):
        return functools.partial(launch, kernel, *sizes[:2])

    def device_array_like(x, stream=0):
        return DeviceArray(np.empty_like(host_of(x)))

    CUDADispatcher.__getitem__ = configured
    module.is_available = lambda: "numba" not in WITHOUT
    module.to_device = lambda x, stream=0: DeviceArray(np.array(x))
    module.as_cuda_array = lambda x, sync=True: DeviceArray(host_of(x))
    module.device_array_like = device_array_like
    module.synchronize = torch_cuda.wait
    module.get_current_device = lambda: SimpleNamespace(
        compute_capability=CAPABILITY, name=NAME.encode()
    )
