"""Watch the turns of a loop, and say what they show."""
