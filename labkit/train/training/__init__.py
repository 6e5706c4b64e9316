"""Train small networks with several seeds: losses, held-out accuracy, and time to accuracy."""

from labkit.train.training.loop import Setup as Setup, fit as fit, interleaved as interleaved
from labkit.train.training.runs import Run as Run, Runs as Runs
from labkit.train.training.split import accuracy as accuracy, held_out as held_out
from labkit.train.training.tuned import (
    AccuracyGain as AccuracyGain,
    RateSweep as RateSweep,
    TunedComparison as TunedComparison,
    compare_tuned as compare_tuned,
    sweep_rates as sweep_rates,
)
