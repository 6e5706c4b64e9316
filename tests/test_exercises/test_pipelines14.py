"""Pipelines on real ranks: the single process's loss and weights, the planned order,
and the planned memory.
"""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.nn.functional import mse_loss

import labkit as lab
from exercises.nb14 import pipelines
from labkit.core.errors import BadArgument
from ranks import Span
from trainplan import schedule
from trainplan.errors import ScheduleError

STEPS = 3
LAYERS = 8
WIDTH = 6
ROWS = 24
CPU = torch.device("cpu")


def layers():
    """The whole model as a list."""
    torch.manual_seed(14)
    return [
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double()
        for _ in range(LAYERS)
    ]


def batch():
    draw = torch.Generator().manual_seed(15)
    return torch.randn(2, ROWS, WIDTH, generator=draw, dtype=torch.float64)


def sgd(parts):
    return torch.optim.SGD(
        [w for part in parts for w in part.parameters()], lr=0.5, momentum=0.9
    )


def single_process():
    """Loss of the last step and all weights, by one process that takes the whole batch
    at once.
    """
    model = nn.Sequential(*layers())
    x, y = batch()
    optimizer = sgd(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item(), [w.detach() for w in model.parameters()]


def as_torch(name):
    """One of torch's schedules, which takes one stage or a list."""
    kind = get_schedule_class(name)
    several = "stages" in kind.__init__.__annotations__
    return lambda stages, m: kind(stages if several else stages[0], m, loss_fn=mse_loss)


def as_written(order, placement="loop"):
    return lambda stages, m: pipelines.OwnSchedule(
        stages, m, mse_loss, order=order, placement=placement
    )


def train(schedule_of, microbatches, chunks, placement="loop"):
    """In a rank: three steps of its stages; the last one's losses, micro-batches held,
    and its weights by stage.
    """
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ranks = dist.get_world_size()
    count = ranks * chunks
    cuts = [LAYERS * stage // count for stage in range(count + 1)]
    mine = (rank, count - 1 - rank) if placement == "v" else range(rank, count, ranks)
    parts = {
        stage: nn.Sequential(*layers()[cuts[stage] : cuts[stage + 1]]) for stage in mine
    }
    stages = [
        pipelines.WatchedStage(part, stage, count, CPU) for stage, part in parts.items()
    ]
    optimizer = sgd(parts.values())
    step = pipelines.PipelineStep(schedule_of(stages, microbatches), stages, *batch())
    for number in range(STEPS):
        step.record_spans() if number == STEPS - 1 else step()
        optimizer.step()
        optimizer.zero_grad()
    held = max(stage.most_held for stage in stages)
    weights = {
        stage: [w.detach() for w in part.parameters()] for stage, part in parts.items()
    }
    return [loss.item() for loss in step.losses], held, weights


CASES = {
    "GPipe": (4, 6, 1, as_torch("GPipe"), schedule.gpipe(4, 6)),
    "1F1B": (4, 6, 1, as_torch("1F1B"), schedule.one_f_one_b(4, 6)),
    "interleaved": (
        2,
        4,
        2,
        as_torch("Interleaved1F1B"),
        schedule.interleaved(2, 4, 2),
    ),
    "zero bubble": (3, 6, 1, as_torch("InterleavedZeroBubble"), None),
    "our own GPipe": (2, 4, 1, as_written(schedule.gpipe(2, 4)), schedule.gpipe(2, 4)),
    "our own ZB-H1": (4, 6, 1, as_written(schedule.zb_h1(4, 6)), schedule.zb_h1(4, 6)),
    "our own ZB-H2": (3, 6, 1, as_written(schedule.zb_h2(3, 6)), schedule.zb_h2(3, 6)),
    "our own ZB-V": (
        3,
        6,
        2,
        as_written(schedule.zb_v(3, 6), "v"),
        schedule.zb_v(3, 6),
        "v",
    ),
}


def runs():
    """Four of the cases for `make test-all`, the others nightly: each
    starts its ranks.
    """
    for name in CASES:
        often = name in ("1F1B", "interleaved", "zero bubble", "our own ZB-V")
        mark = pytest.mark.complete if often else pytest.mark.nightly
        yield pytest.param(name, id=name.replace(" ", "-"), marks=mark)


@pytest.fixture(scope="module", params=[*runs()])
def run(request):
    ranks, microbatches, chunks, schedule_of, order, placement = (
        *CASES[request.param],
        "loop",
    )[:6]
    return (
        lab.launch(train, ranks, schedule_of, microbatches, chunks, placement),
        order,
        microbatches,
        placement,
    )


def test_loss_and_weights_are_the_single_process_s_after_three_steps(run):
    launched, _, microbatches, _ = run
    loss, weights = single_process()
    (losses,) = [losses for losses, _, _ in launched if losses]
    assert len(losses) == microbatches
    assert sum(losses) / microbatches == pytest.approx(loss, rel=1e-12)
    by_stage = {
        stage: found for _, _, parts in launched for stage, found in parts.items()
    }
    piped = [w for stage in sorted(by_stage) for w in by_stage[stage]]
    for found, expected in zip(piped, weights, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_steps_come_in_the_planned_order_and_hold_the_planned_memory(run):
    launched, order, _, placement = run
    if order is None:
        # what torch's zero bubble is with one stage a rank, but for when W come at last
        order = schedule.zb_h1(3, 6)
        seen = [
            [step for step in steps if step[0] != "W"] for steps in steps_of(launched)
        ]
        assert seen == [[step for step in steps if step[0] != "W"] for steps in order]
    else:
        assert steps_of(launched) == order
    assert [held for _, held, _ in launched] == list(
        schedule.simulate(order, placement=placement).peak_activations
    )


def steps_of(launched):
    spans = sorted(pipelines.stage_spans(launched.spans), key=lambda span: span.start_s)
    return [
        [span.kind + span.label for span in spans if span.rank == rank]
        for rank in range(len(launched))
    ]


def test_idle_share_counts_watched_steps_only():
    spans = [
        Span(0, 1.0, 2.0, "F", "0"),
        Span(1, 2.0, 4.0, "B", "0"),
        Span(0, 0.0, 9.0, "communication", "send"),
        Span(1, 0.0, 9.0, "F"),  # without a micro-batch: none of a watched stage's
    ]
    assert pipelines.idle_share(spans) == pytest.approx(1 - 3 / 6)


def test_no_watched_step_is_said():
    with pytest.raises(BadArgument, match="watched"):
        pipelines.idle_share([Span(0, 0.0, 1.0, "compute")])


@pytest.mark.parametrize("step", ["", "F", "Q0", "F-1", "B0.", "F٣"])
def test_a_step_of_no_kind_is_refused(step):
    with pytest.raises(
        ScheduleError, match=f"Expected order to have steps such as .*, got '{step}'"
    ):
        pipelines._torch_action(step, 0, 2, {"F": "F", "B": "B", "W": "W"})


@pytest.mark.parametrize("seconds", [(1.0, 1.0, 2.0), (1.0, 1.0, -1.0)])
def test_weights_are_a_part_of_the_backward(seconds):
    with pytest.raises(ScheduleError, match=r"Expected weight_s to be .*, got"):
        pipelines.StandInPart(*seconds)
