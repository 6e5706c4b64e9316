"""Errors are Python's own; each message says what was expected, what came, and what to
do next.

    ValueError                    a value that can't be, such as a negative count
        LayoutError               a layout that doesn't divide or fit
        ScheduleError             a schedule that can't run
        gpufacts.UnknownDevice    a device that the table doesn't have
    TypeError                     an argument of another type
    RuntimeError                  a damaged table, or no matplotlib
"""


class LayoutError(ValueError):
    """A layout that can't be: what doesn't divide or fit, by how much, and the nearest
    that does.
    """


class ScheduleError(ValueError):
    """A schedule that can't run: ranks that wait for each other in a circle, or work in
    an impossible order.
    """
