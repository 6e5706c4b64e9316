"""One training step of a model on a cluster, its time, memory and price; and a search over layouts."""
