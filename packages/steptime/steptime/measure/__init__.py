"""Single readings of a machine and of the code that runs on it."""
