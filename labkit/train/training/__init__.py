"""Train small networks with several seeds: losses, held-out accuracy, time to accuracy, and where a NaN came from."""

from labkit.train.training import slow_script
from labkit.train.training.loop import Setup, Step, fit, in_turn, over_seeds
from labkit.train.training.noise import GradientNoise, gradient_noise, noise_scale
from labkit.train.training.ranges import RangeTest, range_test
from labkit.train.training.runs import Reached, Run, Runs
from labkit.train.training.split import accuracy, held_out

__all__ = [
    "GradientNoise",
    "RangeTest",
    "Reached",
    "Run",
    "Runs",
    "Setup",
    "Step",
    "accuracy",
    "fit",
    "gradient_noise",
    "held_out",
    "in_turn",
    "noise_scale",
    "over_seeds",
    "range_test",
    "slow_script",
]
