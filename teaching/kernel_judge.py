"""The process that judges kernels by their sources (`kernel_source`). Nothing else of a
learner's runs in it.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from typing import Any

from teaching.channel import Channel, NoMessage
from teaching.hidden_check import judge
from teaching.kernel_source import rebuilt
from teaching.learner import channel_of


def serve(channel: Channel) -> None:
    """Judge one kernel after the other, until the grader has gone."""
    with contextlib.suppress(NoMessage):
        while True:
            number, kernel, salt = pickle.loads(channel.receive())
            channel.send(pickle.dumps(verdict(number, kernel, salt)))


def verdict(number: str, kernel: dict[str, Any], salt: str) -> tuple[str, str]:
    """State and words of an outcome."""
    try:
        outcome = judge(number, rebuilt(kernel), salt)
    except Exception as error:
        return "not yet", f"Your kernel could not be judged: {error}"
    return outcome.state, outcome.message


if __name__ == "__main__":
    serve(channel_of(sys.argv[1]))
