"""Train small networks: losses, held-out accuracy, and ways to train compared over
several seeds.
"""

from labkit.train.training.loop import Run, Setup, fit
from labkit.train.training.split import accuracy, held_out
from labkit.train.training.tuned import (
    AccuracyGain,
    RateSweep,
    TunedComparison,
    compare_tuned,
    sweep_rates,
)

__all__ = [
    "AccuracyGain",
    "RateSweep",
    "Run",
    "Setup",
    "TunedComparison",
    "accuracy",
    "compare_tuned",
    "fit",
    "held_out",
    "sweep_rates",
]
