"""The page "Try it here": what the notebooks show with a kernel, for readers who have
none.

A schedule is simulated by the page itself; kernels were run by kerneltrace when the
book was built, and the page plays what it recorded.
"""
