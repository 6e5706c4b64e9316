"""Where the time of a training step went, what limits a training loop, how much of the machine a step uses."""
