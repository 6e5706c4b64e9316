"""Copies and kernels in one stream and in two, for notebook 05: as a calculated
timetable, and on a GPU.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from exercises.nb05.nvrtc import NEEDS
from labkit.lesson.boards import SpeedBoard
from labkit.measure import catalog, published, simulated
from labkit.measure.machine import machine

_CHUNKS = 4
_NUMBERS = 2**22  # in a chunk, float32
_SINES = 20  # kernels on each chunk


def timetable(
    streams: int,
    *,
    chunks: int = _CHUNKS,
    copy_s: float = 4e-3,
    kernel_s: float = 4e-3,
) -> list[simulated.Event]:
    """When each chunk is copied and computed: the bus and the GPU do one thing at a
    time, and a stream does its own in order.
    """
    bus_s = gpu_s = 0.0  # when the bus and the GPU are free again
    stream_s = [0.0] * streams
    events = []
    for chunk in range(chunks):
        stream = chunk % streams
        copied_s = max(bus_s, stream_s[stream]) + copy_s
        done_s = max(gpu_s, copied_s) + kernel_s
        copy = simulated.Event(f"copy {chunk}", "bus", copied_s - copy_s, copied_s)
        kernel = simulated.Event(f"kernel {chunk}", "device", done_s - kernel_s, done_s)
        events += [copy, kernel]
        bus_s = copied_s
        gpu_s = done_s
        stream_s[stream] = done_s
    return events


def race(*, with_cupy: bool) -> None:
    """Time four chunks in one stream and in two, with CuPy; without it, the timetable
    is calculated for an H200, whose bus somebody measured.
    """
    size = f"{_CHUNKS} chunks of {_NUMBERS:,} numbers"
    board = SpeedBoard("05.2", "Copied and computed", size=size, dtype="float32")
    if with_cupy:
        _time(board)
        return
    bandwidth = catalog.find("H200 SXM").bandwidth_bytes_per_s or math.nan
    bus = published.bus("H200", "PCIe 5 x16")
    chunk_bytes = 4 * _NUMBERS
    copy_s = chunk_bytes / bus.bytes_per_s
    kernel_s = _SINES * 2 * chunk_bytes / bandwidth
    for row, count in {"one stream": 1, "two streams": 2}.items():
        events = timetable(count, copy_s=copy_s, kernel_s=kernel_s)
        board.absent(row, needs=NEEDS, calculated={"H200": events[-1].end_s})


def _time(board: SpeedBoard) -> None:
    cupy: Any = importlib.import_module("cupy")
    cupyx: Any = importlib.import_module("cupyx")
    # only copies from pinned memory overlap
    on_host = cupyx.zeros_pinned((_CHUNKS, _NUMBERS), dtype=np.float32)
    on_gpu = cupy.empty(on_host.shape, dtype=cupy.float32)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(_CHUNKS)]

    def work(count: int) -> None:
        for chunk in range(_CHUNKS):
            with streams[chunk % count] as stream:
                on_gpu[chunk].set(on_host[chunk], stream=stream)
                for _ in range(_SINES):
                    cupy.sin(on_gpu[chunk], out=on_gpu[chunk])

    begin = cupy.cuda.Event()
    end = cupy.cuda.Event()
    begin.record(streams[0])
    work(1)
    end.record(streams[0])
    end.synchronize()
    cold_ms = cupy.cuda.get_elapsed_time(begin, end)
    print(f"one stream, cold, by events: {cold_ms:.2f} ms")
    rows = {"one stream": lambda: work(1), "two streams": lambda: work(2)}
    board.compare(rows, sync=machine().sync, budget_s=1.0)
