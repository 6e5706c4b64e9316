"""Arguments of every figure function, with a text of the caller's choice wherever a figure shows one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda
from torch import nn

import labkit as lab
from exercises.nb01 import device_jobs
from exercises.nb01.published_matmuls import PublishedMatmul
from exercises.nb09 import formats
from exercises.nb11.gradient_noise import GradientNoise
from exercises.nb11.several_seeds import Runs
from exercises.nb15.elastic import LoggedStep
from exercises.nb18.compiled import Code
from kerneltrace.compiler import KernelResources
from labkit.measure.bench import Ratio, Timing
from labkit.train.data import BatchTimes
from labkit.train.training import RateSweep, Run, TunedComparison
from ranks import Span
from steptime import PARTS, Limit, PartSpan, StepProfile
from steptime.allocations import Phase
from steptime.memory_by_category import MemoryTimeline
from trainplan.facts.agreement import Agreement, Compared


def _kernel(out, x):
    tile = cuda.shared.array(32, "f4")
    i = cuda.grid(1)
    tile[i] = x[i]
    cuda.syncthreads()
    if i < len(out):
        out[i] = tile[31 - i]


def _of_plan(text: str) -> dict[str, dict[str, Any]]:
    cluster = lab.cluster.Cluster("A100 SXM4 80GB", gpus=8)
    step = lab.cluster.step(lab.cluster.Transformer(8, 1024, 16, seq=1024), cluster, lab.cluster.Layout(8), 64)
    agreed = Agreement(text, text, (Compared(text, 20.0, 10.0, step), Compared(text, 5.0, 5.0, step)))
    replayed = Agreement(text, text, (Compared(f"{text}, {text}", 20.0, 10.0, text),), text)
    job = device_jobs.Job(memory_bytes=1e9, flop=1e12, n_bytes=1e9, dtype="float32")
    judged = device_jobs.shortlist(job, map(lab.catalog.find, ("T4", "H100 SXM5 80GB")))
    matmul = PublishedMatmul(text, text, 5e13, 1e14, text, text, text)
    return {
        "agreement": {"tables": [agreed]},
        "step_parts": {"steps": {text: step}},
        "scales": {"series": {text: {1: 2.0, 8: 3.0}}, "x": text, "y": text, "unit": "s", "marks": {text: 2.0}},
        "speedup_by_ranks": {"predicted": {text: {1: 1.0, 2: 1.9}}, "simulated": {1: 1.0, 2: 1.7}},
        "bytes_by_tokens": {"counted": {"FSDP": {10: 4e4}}, "params": 4800, "blocks": 2, "hidden": 10, "ranks": 4},
        "roofline": {"points": {text: (0.1, 1e9)}, "flop_per_s": 1e11, "bytes_per_s": 2e10},
        "reached": {"published": [matmul], "here": {text: (5e13, 1e14)}},
        "shortlist": {"candidates": judged},
        "shortlist_of": {
            "model": "BERT-base", "batch": 32, "sequence": 128, "dtype": "float32", "optimizer": "adamw",
        },
        "jobs_by_device": {"judged": {text: judged}},
        "gantt": {"ranks": [Span(0, 0.0, 1.0, text, text), Span(1, 0.0, 2.0, text, "0")], "until_s": 3.0},
        "replays": {"runs": replayed},
        "restarts": {"log": [LoggedStep(0, 2.0, 0, 1.0), LoggedStep(0, 3.0, 1, 0.9), LoggedStep(1, 7.5, 1, 0.9)]},
        "calculated_times": {"tables": [agreed]},
        "blocks_allowed": {"found": lab.occupancy(1024, registers=24, compute_capability=(8, 6))},
        "register_caps": {
            "builds": {64: KernelResources(64, 0, 0, 0, 0, 0, 1024)}, "block": 256, "compute_capability": (8, 0),
        },
    }  # fmt: skip


def _of_measurements(text: str) -> dict[str, dict[str, Any]]:
    timing = Timing(text, 1.0, (0.1, 0.2, 0.3))
    bar = lab.plot.Bar(text, measured=3.0, low=2.0, high=4.0, predicted=5.0, limit=6.0, others=[(text, 2.0)])
    parts = {**dict.fromkeys(PARTS, 0.0), "forward": 0.02, "gaps": 0.01}
    spans = (PartSpan("host", "forward", 0.0, 0.01), PartSpan("device", "forward", 0.01, 0.03))
    held = dict.fromkeys(
        ("parameters", "optimizer state", "gradients", "activations", "temporary and other"), (0, 2**20)
    )
    device = lab.simulated.SimulatedDevice()
    device.launch(0.1)
    times = [BatchTimes(0, 1.0, 3.0, 0.5, 3.0), BatchTimes(0, 3.0, 4.0, 3.5, 4.0)]
    return {
        "speed_bars": {"bars": [bar, lab.plot.Bar(text, note=text)], "unit": "images/s", "log": False},
        "step_strip": {"profile": StepProfile(text, 2, (0.03, 0.03), parts, spans, (), {}, Path("step.json"))},
        "memory_timeline": {"timeline": MemoryTimeline("cpu", (0.0, 0.1), held, (Phase(text, 0.0, 0.1),), text)},
        "shares": {"limit": Limit({"input": 0.6, "arithmetic": 0.4}, (), 0.02)},
        "tile_shares": {"numbers": 256, "code": Code(text, 90, {"threads": 64, "numbers a load": 4}, text)},
        "first_tiles": {"orders": {text: lambda program, _rows, columns: divmod(program, columns)}},
        "queue": {"times": times},
        "timeline": {"events": device.events, "reads": {text: 0.01}},
        "readings": {"timings": [timing]},
        "single_runs": {"speedups": [1.0, 1.2]},
        "ratios": {"named": {text: Ratio(text, text, 2.0, 1.8, 2.2)}},
        "amdahl": {"share": 0.5, "factor": 4.0},
        "break_even": {"compile_s": 8.0, "eager_s": 0.5, "compiled_s": 0.25, "without": "eager"},
    }  # fmt: skip


def _of_training(text: str) -> dict[str, dict[str, Any]]:
    run = Run(0, 10, (1.0,) * 30, (0.2, 0.6, 1.0), (1.0, 2.0, 3.0), (100, 200, 300), nn.Identity())
    noise = GradientNoise(noise=50.0, signal=1.0, low=40.0, high=60.0, draws=9)
    return {
        "curves": {"series": {text: [3.0, 2.0]}, "x": text, "y": text},
        "seed_bands": {"named": {text: [run]}, "accuracy": 0.8},
        "rate_sweeps": {"named": {text: RateSweep({0.01: (0.5,), 0.1: (0.9,), 1.0: (0.6,)})}, "y": text},
        "time_to_accuracy": {
            "named": {text: {10: Runs((run,), text)}},
            "accuracy": 0.6,
            "what": "steps",
            "noise": noise,
        },
        "bits": {"value": 1.25, "shown": formats.ALL},
        "gradients": {"values": np.array([1e-3, 1.0]), "number_format": formats.float16},
        "accuracy_by_seed": {
            "found": TunedComparison({text: (0.9, 0.8), "other": (0.9, 0.7)}, {text: 0.1, "other": 0.1}, {}),
            "notes": {text: text, "other": text},
        },
        "images": {"pixels": np.ones((2, 1, 4, 4)), "labels": [1, 2]},
        "grey_images": {"named": {text: np.ones((4, 4))}},
        "owners": {"blocks": np.array([0, 0, 1]), "threads": np.array([0, 1, 0])},
    }


def _of_kernels() -> dict[str, dict[str, Any]]:
    traced = lab.trace(_kernel, 1, 32, np.zeros(30, "f4"), np.ones(32, "f4"))
    return {
        "warp_lines": {"request": traced.request("x", kind="load")},
        "banks": {"request": traced.request("tile", kind="load")},
        "divergence": {"trace": traced, "warp": 0},
    }


def figures(text: str = "text") -> dict[str, dict[str, Any]]:
    """The arguments of each figure function, by its name."""
    return {**_of_plan(text), **_of_measurements(text), **_of_training(text), **_of_kernels()}
