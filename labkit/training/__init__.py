"""Train small networks with several seeds: losses, held-out accuracy, time to accuracy, and where a NaN came from."""
