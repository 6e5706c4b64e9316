"""Simulated hardware, whose clock is virtual and whose work costs no time."""

from labkit.measure.simulated.gpu import LOGGED_EVENTS, Event, SimulatedDevice
from labkit.measure.simulated.training_loop import TrainingJob
from labkit.measure.simulated.workstation import Blur, Numbers, Workstation

__all__ = ["LOGGED_EVENTS", "Blur", "Event", "Numbers", "SimulatedDevice", "TrainingJob", "Workstation"]
