"""Where the time and the memory of a few steps go, mostly from torch's profiler."""
