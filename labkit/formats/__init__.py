"""Number formats of deep learning: what each bit means, what rounds, overflows and vanishes."""
