"""Find by experiment what limits a loop."""
