"""Published speeds of the same model on TPUs and on GPUs, in tokens a second and chip:
the best of each, whatever the layout.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from labkit import plot
from labkit.core.results import Measurement
from labkit.measure import published
from labkit.plot import Bar, Picture
from trainplan import cluster

V6E = "TPU v6e Trillium (chip)"
H100 = "H100 SXM5 80GB"
A100 = "A100 SXM4 80GB"
GB200 = "GB200 (per Blackwell GPU)"
MODELS = ("Llama-3-8B", "Llama-3-70B", "Llama-2-70B", "GPT-3 175B")
# (chip, bits of its products) -> tokens a second
Speeds = dict[tuple[str, int], float]
# what a bar is called; these H100s are an export with less memory bandwidth and power
_NAMES = {
    (V6E, 16): "TPU v6e",
    (A100, 16): "A100",
    (H100, 8): "H100",
    (GB200, 8): "GB200",
    (H100, 16): "H100 of 500 W",
}


@functools.cache
def _rows() -> tuple[cluster.Compared[cluster.Step], ...]:
    """Every published step whose speed the planner is compared with."""
    names = [name for name in cluster.COMPARISONS if "memory" not in name]
    return tuple(
        row
        for name in (*names, "MaxText")
        for row in cluster.published_steps(name).rows
    )


def bits_of(dtype: str) -> int:
    """Bits of the numbers that a step's products multiply, such as 8 of "mixed
    float8".
    """
    if "fp4" in dtype:
        return 4
    return 8 if "float8" in dtype or "fp8" in dtype else 16


def best_speeds(model: str) -> Speeds:
    """The best published speed of a model by chip and bits.

    torchtitan's best run of 8 billion parameters on H100s isn't compiled. It is
    multiplied with the gain that the same source measured for compiling, since MaxText
    compiles too.
    """
    wanted = cluster.model(model)
    best: Speeds = {}
    for row in _rows():
        if (row.by.model.params, row.by.model.seq) == (wanted.params, wanted.seq):
            chip = row.by.cluster.gpu.name, bits_of(row.by.layout.dtype)
            best[chip] = max(best.get(chip, 0.0), row.published)
    if model == "Llama-3-8B":
        (compiled,) = published.ratios("21.6").values()
        best[H100, 16] *= compiled.value
    return best


def v6e_over(model: str, chip: str, bits: int = 16) -> float | None:
    """How many times a chip's speed a TPU v6e has in 16 bits; None where nobody
    published the chip's.
    """
    speeds = best_speeds(model)
    if (chip, bits) not in speeds:
        return None
    return speeds[V6E, 16] / speeds[chip, bits]


def gains() -> dict[str, Measurement]:
    """For each model v6e's speed over the best GPU's, both in 16 bits, as a published
    ratio.
    """
    ratios: dict[str, Measurement] = {}
    for model in MODELS:
        speeds = best_speeds(model)
        gpus = [
            (chip, bits)
            for chip, bits in speeds
            if bits == 16 and not chip.startswith("TPU")
        ]
        gpu = max(gpus, key=speeds.__getitem__)
        name = f"{model}, v6e over {_NAMES.get(gpu, gpu[0])}"
        ratios[name] = Measurement(
            "21.6",
            name,
            speeds[V6E, 16] / speeds[gpu],
            "x",
            "published",
            "MaxText, and who published the GPU's run",
            "",
        )
    return ratios


def reasons() -> Mapping[str, object]:
    """What else the claim's verdict is read with: 8 bits, the newest GPU, and whether
    TPUs split tensors and batch at once.
    """
    in_8_bits = {
        gpu: [
            1 / ratio
            for model in MODELS
            if (ratio := v6e_over(model, gpu, 8)) is not None
        ]
        for gpu in (H100, GB200)
    }
    reach: dict[str, float] = {}
    for row in _rows():
        if bits_of(row.by.layout.dtype) == 16:
            chip = row.by.cluster.gpu.name
            tflop_per_s = row.published * row.by.model.flop_per_token / 1e12
            reach[chip] = max(reach.get(chip, 0.0), tflop_per_s)
    both = sum(
        row.by.layout.tensor > 1 and row.by.layout.data > 1
        for row in cluster.published_steps("MaxText").rows
    )
    over_gpus = [ratio.value for ratio in gains().values()]
    return {
        "v6e over the best GPU, 16 bits": _range(over_gpus),
        "H100 in 8 bits over v6e": _range(in_8_bits[H100]),
        "GB200 in 8 bits over v6e": _range(in_8_bits[GB200]),
        "most TFLOP/s in 16 bits": {chip: reach[chip] for chip in (V6E, H100, GB200)},
        "TPU runs that split tensors and batch": f"{both}",
    }


def _range(ratios: list[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}x"


def bars() -> Picture:
    """Each model's best speeds, v6e's as 1."""
    rows = []
    for model in MODELS:
        speeds = best_speeds(model)
        for chip in sorted(speeds, key=speeds.__getitem__, reverse=True):
            if chip in _NAMES:
                ratio = speeds[chip] / speeds[V6E, 16]
                name = f"{model}: {_NAMES[chip]}, {chip[1]} bits"
                rows.append(Bar(name, others=[("published", ratio)]))
    title = "Tokens a second and chip, TPU v6e = 1"
    return plot.speed_bars(rows, unit="x", title=title)
