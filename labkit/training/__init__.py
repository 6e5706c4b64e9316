"""Train small networks with several seeds: losses, held-out accuracy, time to accuracy, and where a NaN came from."""

from labkit.training.loop import Setup, Step, fit, in_turn, over_seeds
from labkit.training.noise import GradientNoise, gradient_noise, noise_scale
from labkit.training.parallel import Backward, backward_by_buckets, in_step
from labkit.training.ranges import RangeTest, range_test
from labkit.training.runs import Reached, Run, Runs
from labkit.training.split import accuracy, held_out

__all__ = [
    "Backward",
    "GradientNoise",
    "RangeTest",
    "Reached",
    "Run",
    "Runs",
    "Setup",
    "Step",
    "accuracy",
    "backward_by_buckets",
    "fit",
    "gradient_noise",
    "held_out",
    "in_step",
    "in_turn",
    "noise_scale",
    "over_seeds",
    "range_test",
]
