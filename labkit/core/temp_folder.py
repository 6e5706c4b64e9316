"""Where temporary files go: some programs take no path that is long or has a space."""

from __future__ import annotations

import os
import tempfile
from multiprocessing import util

# bytes: the address of a Unix socket has at most 104 to 108, and its name is added to
# the folder
_LONGEST = 60


def plain_temp_folder() -> str:
    """The folder for temporary files, or /tmp where its path has a space or is longer
    than 60 bytes.
    """
    usual = tempfile.gettempdir()
    fits = not any(map(str.isspace, usual)) and len(os.fsencode(usual)) <= _LONGEST
    return usual if fits or os.name != "posix" else "/tmp"


def use_short_socket_paths() -> None:
    """Let multiprocessing make its Unix sockets in /tmp where the usual folder's path
    is too long for their addresses.

    It makes its folder once, private to the user, where `tempfile.tempdir` says at that
    moment.
    """
    usual = tempfile.tempdir
    tempfile.tempdir = plain_temp_folder()
    try:
        util.get_temp_dir()
    finally:
        tempfile.tempdir = usual
