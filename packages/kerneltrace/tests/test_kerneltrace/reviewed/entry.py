"""A kernel with a waste, and where it is."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple


class Planted(NamedTuple):
    """A kernel, a Python function or CUDA C++, its launch, and the kind of waste in the
    line marked `here`.

    Occupancy that registers cap has no line. Without a kind there is nothing to remark.
    """

    kind: str
    kernel: Any
    grid: Any
    block: Any
    args: Callable[[], tuple]
    options: dict | tuple = ()
    device_function: Any = None

    @property
    def name(self):
        """Of the kernel."""
        return (
            self.kernel.split("(")[0].split()[-1]
            if isinstance(self.kernel, str)
            else self.kernel.__name__
        )

    def lines(self):
        """The numbers of the marked lines, those of a Python kernel in its file."""
        text = self.kernel
        first = 1
        if not isinstance(text, str):
            lines, first = inspect.getsourcelines(self.device_function or self.kernel)
            text = "".join(lines)
        return [
            first + n
            for n, line in enumerate(text.splitlines())
            if line.endswith(" here")
        ] or [0]
