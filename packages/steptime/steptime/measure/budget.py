"""How often pieces of a loop run within a budget of seconds, equally often on all
ranks, and how long they take.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from steptime.measure.clock import mean_s
from steptime.measure.machine import Watch, distributed

_ROUNDS = 3  # the fewest whose median survives one disturbed round
_LOOK_S = 0.4  # to see what others take: counters have steps of 0.01 s


class Budget:
    """Seconds for all experiments together, and readings that keep to their share of
    it.
    """

    def __init__(self, budget_s: float, device: str, sync: Callable[[], None]) -> None:
        self.budget_s = budget_s
        self._since_s = perf_counter()
        self.device = device
        self.sync = sync
        self.rounds = _ROUNDS

    def seconds(
        self, work: Callable[[], object], *, share: float, skip: int, together: int = 1
    ) -> float:
        """Mean seconds of `work` over the calls that fit in `share` of the budget,
        after `skip` uncounted calls, or fewer if these take as long.

        Calls are counted in groups of `together`: workers that load side by side
        deliver their batches side by side.
        """
        start = perf_counter()
        limit_s = share * self.budget_s
        skipped = 0
        while self.agreed(int(skipped < skip and perf_counter() - start < limit_s)):
            work()
            self.sync()
            skipped += 1
        if skipped < skip:  # a group would take longer than all of these
            together = min(together, max(skipped, 1))
        start = perf_counter()
        # it counts if the share has no room for more
        trial_s = mean_s(work, self.sync, together)
        groups = self.often(perf_counter() - start, share=share, most=200)
        return mean_s(work, self.sync, groups * together) if groups > 1 else trial_s

    def left(self, budget_s: float) -> float:
        """Seconds that are left of `budget_s`, since this began."""
        return self._since_s + budget_s - perf_counter()

    def often(self, each_s: float, *, share: float, most: int) -> int:
        """How many calls fit in a share of the budget."""
        fitting = int(share * self.budget_s / max(each_s, 1e-7))
        return self.agreed(min(max(fitting, 1), most))

    def agreed(self, n: int) -> int:
        """The least of all ranks' numbers: with different ones, a collective would wait
        forever.
        """
        return int(-self.most(-n)) if distributed() else n

    def most(self, number: float) -> float:
        """The highest of all ranks' numbers."""
        # NCCL reduces only what lies on the GPU
        shared = torch.tensor(number, device=self.device, dtype=torch.float64)
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
        return float(shared)


def crowded(device: str, watch: Watch) -> bool:
    """Whether other programs take cores from torch's threads on a CPU, which makes them
    wait for each other.
    """
    if device != "cpu" or torch.get_num_threads() == 1:
        return False
    busy = watch()
    x = torch.ones(256, 256)
    start = perf_counter()
    while perf_counter() - start < _LOOK_S:
        x @ x
    return bool(busy())
