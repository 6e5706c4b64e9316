"""A callback `Diagnose` for each framework that has the loop: steptime.hf,
steptime.lightning and steptime.keras. Each imports its framework.
"""
