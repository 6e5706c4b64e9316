"""Train small networks with several seeds: losses, held-out accuracy, time to accuracy, and where a NaN came from."""

from labkit.train.training import slow_script
from labkit.train.training.batches import Setup
from labkit.train.training.loop import fit, interleaved, over_seeds
from labkit.train.training.noise import GradientNoise, gradient_noise, noise_scale
from labkit.train.training.ranges import RangeTest, range_test
from labkit.train.training.runs import Run, Runs
from labkit.train.training.split import accuracy, held_out

__all__ = [
    "GradientNoise",
    "RangeTest",
    "Run",
    "Runs",
    "Setup",
    "accuracy",
    "fit",
    "gradient_noise",
    "held_out",
    "interleaved",
    "noise_scale",
    "over_seeds",
    "range_test",
    "slow_script",
]
