"""Simulated hardware with a virtual clock: its results are exact, and its work takes no real time."""

from labkit.measure.simulated.gpu import LOGGED_EVENTS, Event, SimulatedDevice
from labkit.measure.simulated.training_loop import TrainingJob
from labkit.measure.simulated.workstation import Blur, Numbers, Workstation

__all__ = ["LOGGED_EVENTS", "Blur", "Event", "Numbers", "SimulatedDevice", "TrainingJob", "Workstation"]
