"""What `lab.verdict` takes of notebook 20's races: evidence, conditions, and what is
missing where TensorFlow is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exercises.nb20.tensorflow_here import gpus, tensorflow
from labkit.lesson.claims import WORTH_IT
from labkit.measure.bench import Comparison, Ratio
from labkit.train.training import TunedComparison

_APPENDIX = "`make appendix`"
_MARKEDLY = 1.5
_ENOUGH_SEEDS = 10
_ROUNDING = 1e-4  # of a step: more is another step


def _device() -> str:
    return "a GPU" if gpus(tensorflow()) else "a CPU"


def of_graphs(race: Comparison | None, batch: int) -> dict[str, Any]:
    """A network's step in a graph, and compiled by XLA, against eager."""
    if race is None:
        return {"evidence": None, "section": "20.2", "needs": _APPENDIX}
    return {
        "evidence": [race.ratio(name) for name in ("tf.function", "XLA")],
        "section": "20.2",
        "because": list(race.ratios),
        "when": f"SimpleCNN, batch {batch}, on {_device()}",
    }


def markedly(race: Comparison | None) -> float:
    """How many times as fast as eager a graph has to be for C03: half as fast again as
    the faster of both frameworks' eager modes.
    """
    if race is None:
        return _MARKEDLY
    return _MARKEDLY * max(1.0, race.ratio("PyTorch").value)


def of_16_bits(
    gains: Mapping[str, Ratio], learned: TunedComparison | None, policy: str, seeds: int
) -> dict[str, Any]:
    """Less time, by network, and the accuracy kept."""
    faster = [name for name, gain in gains.items() if gain.low > WORTH_IT]
    about: dict[str, Any] = {"section": "20.4", "evidence": None, "needs": _APPENDIX}
    if learned is None:
        return about
    about["needs"] = "a device on which a network gains, and ten seeds"
    about["because"] = [*gains.values(), learned.gain(policy)]
    about["when"] = f"in Keras on {_device()} with {' and '.join(faster)}"
    if faster and seeds >= _ENOUGH_SEEDS:
        kept = learned.keeps(policy)
        about["evidence"] = "not shown" if kept is None else kept
    return about


def of_data_and_devices(
    fed: Comparison | None, off_by: float, is_solved: bool
) -> dict[str, Any]:
    """Images that are loaded in parallel and ahead, and a step on two devices that is
    `off_by` of the step of one, once exercise 20.5 is solved.
    """
    if fed is None:
        return {"evidence": None, "section": "20.5", "needs": _APPENDIX}
    gain = fed.ratio("parallel, ahead")
    is_one_step = off_by < _ROUNDING
    evidence = gain if is_one_step else False
    return {
        "evidence": evidence if is_solved else None,
        "section": "20.5",
        "because": {"time": gain, "off by, of one device's step": f"{off_by:.1e}"},
        "needs": "exercise 20.5",
    }
