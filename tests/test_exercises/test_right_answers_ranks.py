"""Right answers of 12 to 15 in other styles than the solution's: each must pass."""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel
from torch.nn.functional import cross_entropy

from tests.helpers import check


def share_read_twice(model, images, labels):
    """Computes the loss to be returned in a forward pass of its own."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = images.tensor_split(ranks)[rank], labels.tensor_split(ranks)[rank]
    model.zero_grad()
    (cross_entropy(model(x), y, reduction="sum") / len(images)).backward()
    with torch.no_grad():
        loss = cross_entropy(model(x), y, reduction="sum") / len(images)
    for tensor in (loss, *(weight.grad for weight in model.parameters())):
        dist.all_reduce(tensor)
    return loss.item()


def backwards_ring(x):
    """Sends to the left, and adds the parts up from the other end."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = [part.clone() for part in x.tensor_split(ranks)]
    for step in range(2 * (ranks - 1)):
        sent, kept = (rank + step) % ranks, (rank + step + 1) % ranks
        inbox = torch.empty_like(parts[kept])
        requests = [dist.isend(parts[sent], (rank - 1) % ranks), dist.irecv(inbox, (rank + 1) % ranks)]
        for request in requests:
            request.wait()
        parts[kept] = parts[kept] + inbox if step < ranks - 1 else inbox
    return torch.cat(parts)


def costs_and_more(params, tokens, gpus, flop_per_s, mfu, usd_per_hour, power_w):
    hours = 6 * params * tokens / gpus / flop_per_s / mfu / 3600
    own = {"days": hours / 24, "GPU hours": gpus * hours, "US$": gpus * hours * usd_per_hour}
    return own | {"kWh": gpus * hours * power_w / 1e3, "hours": hours}


def interval_by_trying(save_s, gpus, gpu_hours_between):
    """Golden-section search of the interval that loses least."""
    between_s = gpu_hours_between * 3600 / gpus
    low, high = 0.0, 10 * between_s
    if not save_s:
        return 0.0
    ratio = (math.sqrt(5) - 1) / 2

    def lost(interval_s):
        return save_s / interval_s + interval_s / 2 / between_s

    while high - low > 1e-9 * between_s:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if lost(left) < lost(right) else (left, high)
    return (low + high) / 2


COLUMNS, ROWS = ("query", "key", "value", "up"), ("out", "down")
PLAN = {name: ColwiseParallel() for name in COLUMNS} | {name: RowwiseParallel() for name in ROWS}
RIGHT = {
    "12.1": [share_read_twice],
    "12.3": [backwards_ring],
    "13.5": [PLAN, PLAN | {"norm_1": SequenceParallel(sequence_dim=1, use_local_output=True)}],
    "15.5": [costs_and_more],
    "15.6": [interval_by_trying],
}
CASES = [pytest.param(number, answer, id=f"{number}-{i}") for number in RIGHT for i, answer in enumerate(RIGHT[number])]


@pytest.mark.parametrize(("number", "answer"), CASES)
def test_a_right_answer_of_another_style_passes(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome
