"""Print the facts about a device: python -m gpufacts "NVIDIA H100 80GB HBM3"."""

from __future__ import annotations

import argparse
import os
import sys

import gpufacts

_WIDTH = 22  # of the names of facts, in characters


def main(arguments: list[str] | None = None) -> int:
    """Print what was asked for; the exit status, 2 for an unknown name."""
    try:
        try:
            return _answer(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # whoever reads it has stopped; nor must Python's last flush complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _answer(arguments: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpufacts", description=__doc__)
    parser.add_argument(
        "name",
        nargs="*",
        help="as a driver or a data sheet writes it; without a name, all are listed",
    )
    name = " ".join(parser.parse_args(arguments).name)
    if not name:
        for device in gpufacts.devices():
            print(device)
        return 0
    try:
        device = gpufacts.find(name)
    except gpufacts.UnknownDevice as error:
        print(error, file=sys.stderr)
        return 2
    print(device.name)
    if device.assumed:
        print(device.assumed)
    for label, text in gpufacts.facts(device):
        print(f"  {label:{_WIDTH}}{text}")
    if device.unread:
        print("* recalled or derived, not read from the source")
    return 0


if __name__ == "__main__":
    sys.exit(main())
