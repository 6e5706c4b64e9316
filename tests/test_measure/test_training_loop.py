import pytest

from labkit.core.errors import BadArgument
from labkit.measure.simulated import TrainingJob


@pytest.mark.parametrize("read", [float, bool, str, repr, "{:.2f}".format, lambda x: x < 1, lambda x: x > 1])
def test_reading_a_loss_waits_for_the_simulated_device(read):
    job = TrainingJob(prepare_s=1e-3, step_s=5e-3)
    loss = job.step(job.prepare())
    assert job.device.clock() < 2e-3
    read(loss)
    assert job.reads == 1
    assert job.device.clock() > 6e-3


def test_adding_losses_is_an_order():
    job = TrainingJob(prepare_s=1e-3, step_s=5e-3)
    total = sum(job.step(job.prepare()) for _ in range(3))
    assert job.device.clock() < 4e-3
    assert job.reads == 0
    assert total.item() == pytest.approx(sum(job.losses))
    with pytest.raises(TypeError):
        total + "1"


def test_each_batch_is_prepared_for_one_step():
    job = TrainingJob(prepare_s=1e-3, step_s=1e-3)
    batch = job.prepare()
    job.step(batch)
    for other in (batch, 7):
        with pytest.raises(BadArgument, match=r"not prepared, or was trained on before"):
            job.step(other)
