import pytest
import torch

from labkit.core.errors import BadArgument
from labkit.measure.simulated import TrainingJob

READS = {
    "item": lambda x: x.item(),
    "float": float,
    "bool": bool,
    "format": "{:.2f}".format,
    "not itself": lambda x: bool(x != x),
    "to": lambda x: x.to(device="cpu"),
    "numpy": lambda x: x.detach().numpy(),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "later": lambda x: torch.stack([x, x]).mean().item(),
}


@pytest.mark.parametrize("read", READS)
def test_what_needs_a_losses_number_waits_for_the_simulated_device(read):
    job = TrainingJob(prepare_s=1e-3, step_s=5e-3)
    loss = job.step(job.prepare())
    assert job.device.clock() < 2e-3
    READS[read](loss)
    assert job.reads == 1
    assert job.device.clock() > 6e-3


ORDERS = {
    "sum": sum,
    "stack": lambda losses: torch.stack(losses).sum(),
    "in place": lambda losses: (
        torch.zeros((), dtype=torch.float64)
        + losses[0].detach().add_(losses[1])
        + losses[2]
    ),
    "comparison": lambda losses: (
        losses[0] + losses[1] + losses[2] * (losses[2] == losses[2])
    ),
    "shape": lambda losses: sum(losses) * losses[0].numel() + losses[0].dim(),
    "set": lambda losses: sum(losses) * len(set(losses)) / 3,
}


@pytest.mark.parametrize("order", ORDERS)
def test_what_needs_no_number_is_queued(order):
    job = TrainingJob(prepare_s=1e-3, step_s=5e-3)
    total = ORDERS[order]([job.step(job.prepare()) for _ in range(3)])
    assert job.device.clock() < 4e-3
    assert job.reads == 0
    assert total.item() == pytest.approx(sum(job.losses))


def test_each_batch_is_prepared_for_one_step():
    job = TrainingJob(prepare_s=1e-3, step_s=1e-3)
    batch = job.prepare()
    job.step(batch)
    for other in (batch, 7):
        with pytest.raises(
            BadArgument, match=r"not prepared, or was trained on before"
        ):
            job.step(other)
