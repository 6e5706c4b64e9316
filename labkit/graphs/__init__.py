"""What torch.compile makes of a function: where the graph breaks, what it costs, when it pays."""
