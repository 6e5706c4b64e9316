"""Train small networks with several seeds: losses, held-out accuracy, and time to accuracy."""

from labkit.train.training import slow_script
from labkit.train.training.batches import Setup
from labkit.train.training.loop import fit, interleaved
from labkit.train.training.noise import GradientNoise, gradient_noise, noise_scale
from labkit.train.training.runs import Run, Runs
from labkit.train.training.split import accuracy, held_out
from labkit.train.training.tuned import AccuracyGain, RateSweep, TunedComparison, compare_tuned, sweep_rates

__all__ = [
    "AccuracyGain",
    "GradientNoise",
    "RateSweep",
    "Run",
    "Runs",
    "Setup",
    "TunedComparison",
    "accuracy",
    "compare_tuned",
    "fit",
    "gradient_noise",
    "held_out",
    "interleaved",
    "noise_scale",
    "slow_script",
    "sweep_rates",
]
