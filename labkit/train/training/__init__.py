"""Train small networks: losses, held-out accuracy, and ways to train compared over
several seeds.
"""

from labkit.train.training.loop import Run as Run, Setup as Setup, fit as fit
from labkit.train.training.split import accuracy as accuracy, held_out as held_out
from labkit.train.training.tuned import (
    AccuracyGain as AccuracyGain,
    RateSweep as RateSweep,
    TunedComparison as TunedComparison,
    compare_tuned as compare_tuned,
    sweep_rates as sweep_rates,
)
