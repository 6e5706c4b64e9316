"""Right answers of 12 to 15 in other styles than the solution's: each must pass."""

import math

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
)
from torch.nn.functional import cross_entropy

from exercises import several_ranks
from tests.helpers import check
from trainplan.cluster import Cluster, Layout, best_layout, model


def summed_behind_the_loss(model, images, labels):
    """Gradients travel while the loss is summed, and are waited for at the end, one of
    them by its future.
    """
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    model.zero_grad()
    loss = cross_entropy(
        model(images.tensor_split(ranks)[rank]),
        labels.tensor_split(ranks)[rank],
        reduction="sum",
    )
    (loss / len(images)).backward()
    first, *works = [
        dist.all_reduce(weight.grad, async_op=True) for weight in model.parameters()
    ]
    first.get_future().wait()
    total = loss.detach() / len(images)
    dist.all_reduce(total)
    for work in works:
        work.wait()
    return total


def backwards_ring(x):
    """Sends to the left, and adds the parts up from the other end."""
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    parts = [part.clone() for part in x.tensor_split(ranks)]
    for step in range(2 * (ranks - 1)):
        sent = (rank + step) % ranks
        kept = (rank + step + 1) % ranks
        inbox = torch.empty_like(parts[kept])
        requests = [
            dist.isend(parts[sent], (rank - 1) % ranks),
            dist.irecv(inbox, (rank + 1) % ranks),
        ]
        for request in requests:
            request.wait()
        parts[kept] = parts[kept] + inbox if step < ranks - 1 else inbox
    return torch.cat(parts)


def merged_by_softmax(out_1, lse_1, out_2, lse_2):
    both = torch.stack([lse_1, lse_2])
    return [(both.softmax(0) * torch.stack([out_1, out_2])).sum(0), both.logsumexp(0)]


def kept_token_by_token(chosen, experts, factor):
    room = [math.ceil(factor * len(chosen) / experts)] * experts
    kept = []
    for expert in chosen.tolist():
        kept.append(room[expert] > 0)
        room[expert] -= 1
    return torch.tensor(kept)


COLUMNS = ("query", "key", "value", "up")
ROWS = ("out", "down")
PLAN = {name: ColwiseParallel() for name in COLUMNS} | {
    name: RowwiseParallel() for name in ROWS
}


def rows_by_sets(chosen, per_rank, ranks):
    places = [{expert // per_rank for expert in row} for row in chosen.tolist()]
    return torch.tensor([sum(rank in row for row in places) for rank in range(ranks)])


def rows_by_one_hot(chosen, per_rank, ranks):
    hot = torch.nn.functional.one_hot(
        chosen.div(per_rank, rounding_mode="floor"), ranks
    )
    return (hot.sum(1) > 0).sum(0).to(torch.int32)


RIGHT = {
    "12.1": [summed_behind_the_loss],
    "12.3": [backwards_ring],
    "13.5": [
        PLAN,
        PLAN | {"norm_1": SequenceParallel(sequence_dim=1, use_local_output=True)},
    ],
    "13.8": [merged_by_softmax],
    "13.9": [kept_token_by_token],
    "13.9b": [rows_by_sets, rows_by_one_hot],
    "15.4": [
        Layout(data=2, tensor=4, pipeline=8, interleave=10),
        Layout(data=8, tensor=4, pipeline=2, zero=1),
        best_layout(
            model("Llama-2-70B"), Cluster("A100 SXM4 80GB", 64), 512, runners_up=0
        ).layout,
    ],
}
ON_RANKS = ("12.1", "12.3", "13.5")
CASES = [
    pytest.param(
        number,
        answer,
        id=f"{number}-{i}",
        marks=[pytest.mark.complete] if number in ON_RANKS else [],
    )
    for number, answers in RIGHT.items()
    for i, answer in enumerate(answers)
]


@pytest.mark.parametrize(("number", "answer"), CASES)
def test_a_right_answer_of_another_style_passes(number, answer, monkeypatch):
    # a busy machine starts ranks late
    monkeypatch.setattr(several_ranks, "TIMEOUT_S", 120.0)
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome
