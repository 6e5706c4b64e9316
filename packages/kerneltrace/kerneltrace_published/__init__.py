"""Times of kernels that others published, which estimates are held against, and the
program that calculates the estimates beside them. The wheel goes without it.
"""
