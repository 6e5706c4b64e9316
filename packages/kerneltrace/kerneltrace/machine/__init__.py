"""What a traced kernel meets: its grid, threads and memory, and the log of events."""
