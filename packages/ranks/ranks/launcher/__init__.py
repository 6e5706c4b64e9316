"""What runs in the process that launches ranks."""
