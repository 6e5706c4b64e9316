"""Simulated hardware, whose clock is virtual and whose work costs no time."""

from labkit.simulated.device import LOGGED_EVENTS, Event, SimulatedDevice
from labkit.simulated.workstation import Numbers, Run, Workstation

__all__ = ["LOGGED_EVENTS", "Event", "Numbers", "Run", "SimulatedDevice", "Workstation"]
