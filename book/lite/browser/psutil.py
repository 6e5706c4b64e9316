"""In place of psutil, which isn't built for browsers: labkit imports it, and none of
what the site's notebooks use calls it.
"""


class Error(Exception):
    """psutil's own error, which labkit catches."""


class Process:
    """A name for annotations."""
