"""Simulated hardware with a virtual clock: its results are exact, and its work takes no
real time.
"""

from labkit.measure.simulated.gpu import Event, SimulatedDevice
from labkit.measure.simulated.training_loop import TrainingJob

__all__ = ["Event", "SimulatedDevice", "TrainingJob"]
