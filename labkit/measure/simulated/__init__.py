"""Simulated hardware, whose clock is virtual and whose work costs no time."""

from labkit.measure.simulated.gpu import LOGGED_EVENTS, Event, SimulatedDevice
from labkit.measure.simulated.training_loop import TrainingJob
from labkit.measure.simulated.workstation import Numbers, Run, Workstation

__all__ = ["LOGGED_EVENTS", "Event", "Numbers", "Run", "SimulatedDevice", "TrainingJob", "Workstation"]
