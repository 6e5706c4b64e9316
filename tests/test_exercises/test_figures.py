"""Every figure of the notebooks draws, says what it shows, and shows
each word whole.
"""

import io
import itertools
import math

import numpy as np
import pytest
from numba import cuda
from PIL import Image
from torch import nn

import labkit as lab
from exercises.nb01 import device_jobs
from exercises.nb01.published_matmuls import PublishedMatmul
from exercises.nb08 import prefetching
from exercises.nb09 import formats
from exercises.nb11.gradient_noise import GradientNoise
from exercises.nb11.several_seeds import Runs
from exercises.nb15.elastic import LoggedStep
from exercises.nb18.compiled import Code
from exercises.nb19 import cache_steps
from exercises.nb19.serving import Stay
from exercises.nb19.speculation import Written
from exercises.nb23.sketches import SKETCHES
from kerneltrace import KernelResources
from labkit import plot
from labkit.lesson import exercise_files
from labkit.train.training import RateSweep, Run, TunedComparison
from steptime import (
    MEMORY_CATEGORIES,
    PARTS,
    Limit,
    MemoryTimeline,
    PartSpan,
    Phase,
    StepProfile,
)
from tests.notebook_modules import drawings
from trainplan.cluster import Agreement, Compared

DRAWINGS = {name: draw for name, draw in drawings().items() if not hasattr(plot, name)}


def reverse(out, x):
    tile = cuda.shared.array(32, "f4")
    i = cuda.grid(1)
    tile[i] = x[i]
    cuda.syncthreads()
    if i < len(out):
        out[i] = tile[31 - i]


def of_plans():
    model = lab.cluster.Transformer(8, 1024, 16, seq=1024)
    cluster = lab.cluster.Cluster("A100 SXM4 80GB", gpus=8)
    step = lab.cluster.step(model, cluster, lab.cluster.Layout(8), 64)
    rows = (Compared("one", 20.0, 10.0, step), Compared("other", 5.0, 5.0, step))
    agreed = Agreement("a table", "tokens/s", rows)
    replayed = Agreement(
        "a table", "s", (Compared("one, other", 20.0, 10.0, "GPipe"),), "GPipe"
    )
    job = device_jobs.Job(memory_bytes=1e9, flop=1e12, n_bytes=1e9, dtype="float32")
    devices = [lab.catalog.find(name) for name in ("T4", "H100 SXM5 80GB")]
    judged = device_jobs.shortlist(job, devices)
    matmul = PublishedMatmul(
        "torch", "A100", 5e13, 1e14, "bf16", "n = 4096", "somebody"
    )
    log = [
        LoggedStep(0, 2.0, 0, 1.0),
        LoggedStep(0, 3.0, 1, 0.9),
        LoggedStep(1, 7.5, 1, 0.9),
    ]
    return {
        "roofline": {
            "points": {"add": (0.1, 1e9)},
            "flop_per_s": 1e11,
            "bytes_per_s": 2e10,
        },
        "reached": {"published": [matmul], "here": {"mine": (5e13, 1e14)}},
        "shortlist": {"candidates": judged},
        "shortlist_of": {
            "model": "BERT-base",
            "batch": 32,
            "sequence": 128,
            "dtype": "float32",
            "optimizer": "adamw",
        },
        "jobs_by_device": {"judged": {"BERT": judged}},
        "speedup_by_ranks": {
            "predicted": {"ring": {1: 1.0, 2: 1.9}},
            "simulated": {1: 1.0, 2: 1.7},
        },
        "replays": {"runs": replayed},
        "agreement": {"tables": [agreed]},
        "calculated_times": {"tables": [agreed]},
        "step_parts": {"steps": {"data parallel": step}},
        "restarts": {"log": log},
    }


def of_kernels():
    traced = lab.trace(reverse, 1, 32, np.zeros(30, "f4"), np.ones(32, "f4"))
    found = lab.occupancy(1024, registers=24, compute_capability=(8, 6))
    builds = {64: KernelResources(64, 0, 0, 0, 0, 0, 1024)}
    code = Code("add", 90, {"threads": 64, "numbers a load": 4}, "recorded")
    return {
        "owners": {"blocks": np.array([0, 0, 1]), "threads": np.array([0, 1, 0])},
        "warp_lines": {"request": traced.request("x", kind="load")},
        "banks": {"request": traced.request("tile", kind="load")},
        "divergence": {"trace": traced, "warp": 0},
        "blocks_allowed": {"found": found},
        "register_caps": {"builds": builds, "block": 256, "compute_capability": (8, 0)},
        "tile_shares": {"numbers": 256, "code": code},
        "first_tiles": {
            "orders": {"rows": lambda program, _rows, columns: divmod(program, columns)}
        },
    }


def of_steps():
    parts = dict.fromkeys(PARTS, 0.0) | {"forward": 0.02, "gaps": 0.01}
    host = PartSpan("host", "forward", 0.0, 0.01)
    device = PartSpan("device", "forward", 0.01, 0.03)
    profile = StepProfile(
        "a GPU", 2, (0.03, 0.03), parts, (host, device), (), {}, "step.json"
    )
    held = dict.fromkeys(MEMORY_CATEGORIES, (0, 2**20))
    phases = (Phase("forward", 0.0, 0.1),)
    return {
        "single_runs": {"speedups": [1.0, 1.2]},
        "step_strip": {"profile": profile},
        "memory_timeline": {
            "timeline": MemoryTimeline("cpu", (0.0, 0.1), held, phases, "ReluBackward0")
        },
        "shares": {"limit": Limit({"input": 0.6, "arithmetic": 0.4}, (), 0.02)},
    }


def of_training():
    model = nn.Identity()
    times_s = (1.0, 2.0, 3.0)
    run = Run(0, 10, (1.0,) * 30, (0.2, 0.6, 1.0), times_s, (100, 200, 300), model)
    scores = {"float32": (0.9, 0.8), "bfloat16": (0.9, 0.7)}
    rates = {"float32": 0.1, "bfloat16": 0.1}
    return {
        "bits": {"value": 1.25, "shown": formats.ALL},
        "gradients": {
            "values": np.array([1e-3, 1.0]),
            "number_format": formats.float16,
        },
        "accuracy_by_seed": {
            "tuned": TunedComparison(scores, rates, {}),
            "notes": {"bfloat16": "simulated: no time"},
        },
        "seed_bands": {"named": {"small": [run]}, "accuracy": 0.8},
        "rate_sweeps": {
            "named": {"SGD": RateSweep({0.01: (0.5,), 0.1: (0.9,), 1.0: (0.6,)})},
            "y": "accuracy",
        },
        "time_to_accuracy": {
            "named": {"fixed rate": {10: Runs((run,), "small")}},
            "accuracy": 0.6,
            "what": "steps",
            "noise": GradientNoise(
                noise=50.0, signal=1.0, low=40.0, high=60.0, draws=9
            ),
        },
    }


def of_decoding():
    solved = {"math": math, "itertools": itertools}
    exec(exercise_files.solutions("19")["19.6a"], solved)
    together = [Stay(place, place, 0, 40 + 20 * place) for place in range(2)]
    later = [*together, Stay(0, 2, 40, 90)]
    return {
        "batches": {
            "stays": {"static": [*together, Stay(0, 2, 60, 110)], "continuous": later}
        },
        "cache_blocks": {"step": list(cache_steps.steps(solved["slots"]))[5]},
        "tokens_a_call": {
            "write": lambda k, draft=None: Written([[1, 2]], 10, 10 + 3 * k),
            "drafts": {f"last {n}": lambda text, k: [] for n in (1, 3)},
        },
    }


def of_copies():
    training = prefetching.Training.alike(3e-3, 5e-3, 6)
    return {"two_streams": {"run": training.run(prefetching.ahead)}}


def of_puzzles():
    return {"_sketched": {"sketch": SKETCHES["23.20"]}}


@pytest.fixture(scope="module")
def arguments():
    return (
        of_plans()
        | of_kernels()
        | of_steps()
        | of_training()
        | of_decoding()
        | of_copies()
        | of_puzzles()
    )


def boxes_of(ax):
    """The boxes of the texts in and around the axes, a little smaller than they are
    drawn.
    """
    texts = list(ax.texts)
    if ax.axison:
        texts += [
            *ax.get_xticklabels(),
            *ax.get_yticklabels(),
            ax.xaxis.label,
            ax.yaxis.label,
        ]
    shown = [text for text in texts if text.get_visible() and text.get_text()]
    return [
        (text.get_text(), text.get_window_extent().shrunk(0.9, 0.9)) for text in shown
    ]


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_draws_and_no_text_is_cut_or_covers_another(name, arguments):
    picture = DRAWINGS[name](**arguments[name])
    image = Image.open(io.BytesIO(plot.to_png(picture.ax)))
    pixels = np.asarray(image.convert("RGB"))  # (height, width, 3)
    for edge in (pixels[[0, -1]], pixels[:, [0, -1]]):
        # a margin is left: ink there would be a label that is cut
        assert (edge == 255).all()
    pairs = itertools.combinations(boxes_of(picture.ax), 2)
    covered = [
        (text, other) for (text, box), (other, over) in pairs if box.overlaps(over)
    ]
    assert covered == []
    assert picture.sentence.endswith(".")
    named = picture.ax.get_xlabel() or not picture.ax.axison or picture.ax.texts
    assert named, "numbers along an axis without a word on what they are"
