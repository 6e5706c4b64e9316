"""Simulated hardware with a virtual clock: its results are exact, and its work takes no
real time.
"""

from labkit.measure.simulated.gpu import (
    Event as Event,
    SimulatedDevice as SimulatedDevice,
)
from labkit.measure.simulated.training_loop import TrainingJob as TrainingJob
