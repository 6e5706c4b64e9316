import pytest
import torch
from torch.nn.functional import cross_entropy

from labkit.core.errors import BadArgument, BadMeasurement
from labkit.measure import memory
from labkit.measure.memory import peak_memory
from labkit.train import models
from trainplan import costs

pytestmark = pytest.mark.slow  # allocates, and starts processes


def test_tensors_that_live_together_add_up():
    def work():
        a = torch.ones(1_000_000)
        b = a + 1
        return a, b

    assert peak_memory(work, device="cpu").peak_bytes == pytest.approx(8e6, rel=0.001)


def test_a_freed_tensor_makes_room():
    def work():
        for _ in range(5):
            torch.ones(1_000_000)

    assert peak_memory(work, device="cpu").peak_bytes == pytest.approx(4e6, rel=0.001)
    assert peak_memory(work, device="cpu").held_bytes == 0


def test_what_was_there_before_does_not_count():
    before = torch.ones(1_000_000)
    assert peak_memory(lambda: before[:1000] + 1, device="cpu").peak_bytes < 10_000


def test_a_forward_pass_keeps_what_the_count_says():
    batch = 2048
    images = torch.randn(batch, 3, 32, 32)
    labels = torch.randint(0, 10, (batch,))
    model = models.SimpleCNN()
    measured = peak_memory(
        lambda: cross_entropy(model(images.clone()), labels), device="cpu"
    )
    counted = costs.training_step("SimpleCNN", batch=batch).memory.activation_bytes
    assert measured.held_bytes == pytest.approx(counted, rel=0.001)
    assert measured.peak_bytes >= measured.held_bytes


def test_events_are_taken_by_time_and_only_the_cpus():
    def event(ts, n_bytes, kind=0):
        return {
            "name": "[memory]",
            "ts": ts,
            "args": {"Bytes": n_bytes, "Device Type": kind},
        }

    events = [
        event(3, -5),
        event(1, 5),
        event(4, 7),
        event(5, -1),
        event(2, 100, kind=1),
        {"name": "add"},
    ]
    assert memory.peak_and_end(events) == (7, 6)


def test_an_error_of_the_work_is_the_works_own_and_the_next_call_works():
    with pytest.raises(ZeroDivisionError):
        peak_memory(lambda: 1 / 0, device="cpu")
    assert peak_memory(lambda: torch.ones(1000), device="cpu").peak_bytes > 0


def test_bad_input_says_what_to_do():
    with pytest.raises(BadArgument, match="got 'tpu'"):
        peak_memory(lambda: None, device="tpu")
    with pytest.raises(BadMeasurement, match="Does the work create its tensors there"):
        peak_memory(lambda: None, device="cpu")
