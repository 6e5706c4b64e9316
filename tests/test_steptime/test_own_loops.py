"""Loops in the styles of nanoGPT, torchvision and Hugging Face; and what experiments put back."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy
from torch.optim import optimizer
from torch.utils.data import DataLoader

import steptime
from steptime import own_loop
from steptime.errors import BadMeasurement
from steptime.parts import OCCASIONAL
from steptime.stack_samples import Lines
from steptime.unchanged import unchanged
from steptime.watched_steps import Step, seen
from tests.test_steptime import planted_loops
from tests.test_steptime.planted_loops import CEILINGS, Decoded, labels
from tests.test_steptime.test_bottleneck import on_one_thread, time  # noqa: F401  # fixtures

pytestmark = pytest.mark.slow
TURNS = 11  # besides those that are watched: at the start, and to time operators


def network():
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))


def nanogpt_style(get_batch, estimate_every=20, max_iters=60):
    """A loop without a loader, with gradient accumulation and an evaluation now and then."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = get_batch("train")
    iter_num = 0
    while True:
        if iter_num % estimate_every == 0:
            with torch.no_grad():
                model(get_batch("val")[0])
        for _micro_step in range(2):
            loss = cross_entropy(model(x), y) / 2
            x, y = get_batch("train")
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        iter_num += 1
        if iter_num > max_iters:
            return


def torchvision_style(data_loader, epochs=20):
    model, criterion = network(), nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
    for _epoch in range(epochs):
        model.train()
        for _i, (image, target) in enumerate(data_loader):
            loss = criterion(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()


class Trainer:
    """As Hugging Face's: it has the loop, and the caller calls train()."""

    def __init__(self, model, dataset, max_steps):
        self.model, self.dataset, self.max_steps = model, dataset, max_steps
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.global_step = 0

    def train(self):
        while self.global_step < self.max_steps:
            for inputs, wanted in DataLoader(self.dataset, batch_size=16, shuffle=True):
                try:
                    cross_entropy(self.model(inputs), wanted).backward()
                except Exception:
                    raise
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.global_step += 1


def test_a_function_for_a_batch_is_watched_as_nanogpt_calls_it(time):  # noqa: F811
    found = []

    def get_batch(split):
        time.wait(5e-3)
        return torch.randn(16, 64), labels(16)

    nanogpt_style(steptime.watch(get_batch, steps=40, ceilings=CEILINGS, device="cpu", say=found.append))
    assert [one.dominant for one in found] == ["input"]
    assert found[0].line.startswith("get_batch (test_own_loops.py, line ")


def test_a_loader_is_watched_over_epochs_in_place_of_the_scripts_own(time):  # noqa: F811
    found, loader = [], DataLoader(Decoded(time), batch_size=16)
    watched = steptime.watch(loader, steps=8, ceilings=CEILINGS, device="cpu", say=found.append)
    assert len(watched) == len(loader)
    assert watched.batch_size == 16
    torchvision_style(watched, epochs=6)
    assert found[0].dominant == "input"
    assert found[0].line.startswith("__getitem__")
    assert watched.limit is found[0]


def test_a_whole_training_is_left_when_it_has_been_seen_and_is_as_before(time):  # noqa: F811
    trainer = Trainer(network(), Decoded(time), max_steps=10**6)
    before = copy.deepcopy(trainer.model.state_dict())
    found = steptime.diagnose(trainer.train, steps=6, ceilings=CEILINGS, device="cpu")
    assert found.dominant == "input"
    assert found.line.startswith("__getitem__")
    assert trainer.global_step == 0
    assert not trainer.optimizer.state
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_loop_that_is_too_short_says_how_many_steps_it_takes():
    watched = steptime.watch([(torch.randn(4, 64), labels(4))] * 5, steps=8, ceilings=CEILINGS, say=print)
    for _ in watched:
        pass
    with pytest.raises(BadMeasurement, match=f"ended after 5 steps, and {8 + TURNS} are looked at"):
        watched.limit  # noqa: B018


def test_two_watches_that_other_code_calls_end_at_the_same_step(time):  # noqa: F811
    found, train = [], planted_loops.small_step()
    options = {"steps": 4, "ceilings": CEILINGS, "device": "cpu", "say": found.append}
    loader = [planted_loops.small_batch()] * 20

    def another():
        return steptime.watch(loader, **options)

    for _pair in zip(steptime.watch(loader, **options), another(), strict=True):
        train(loader[0])
    assert len(found) == 2
    assert not optimizer._global_optimizer_post_hooks


def test_two_loaders_that_the_same_code_watches_are_of_one_loop(time):  # noqa: F811
    found, train = [], planted_loops.small_step()
    loader = [planted_loops.small_batch()] * 20
    both = [steptime.watch(loader, steps=4, ceilings=CEILINGS, device="cpu", say=found.append) for _ in range(2)]
    for _pair in zip(*both, strict=True):
        train(loader[0])
    assert len(found) == 1
    assert both[1].limit is found[0]
    assert not optimizer._global_optimizer_post_hooks


def test_a_loop_that_calls_watch_in_each_epoch_is_watched_once_and_another_model_anew(time):  # noqa: F811
    found, hooks = [], []

    def fit(train, epochs):
        for _epoch in range(epochs):
            batches = steptime.watch(
                DataLoader(Decoded(time), batch_size=16), steps=8, ceilings=CEILINGS, device="cpu", say=found.append
            )
            for batch in batches:
                train(batch)
                hooks.append(len(optimizer._global_optimizer_post_hooks))
        return batches

    for already in (0, 1):  # the second model is another loop of the same code
        del hooks[:]
        last = fit(planted_loops.small_step(), epochs=12)
        assert [one.dominant for one in found[already:]] == ["input"]
        assert last.limit is found[already]
        assert max(hooks) == 1
        assert hooks[-1] == 0, "the last epochs weren't watched"


def test_without_an_optimizer_each_batch_is_a_turn(time):  # noqa: F811
    found, model = [], network().eval()
    for _epoch in range(1):
        for images, _labels in steptime.watch(
            DataLoader(Decoded(time, 1e-3), batch_size=2), steps=8, ceilings=CEILINGS, say=found.append
        ):
            model(images)
    assert found[0].dominant == "input"


class Kept(Decoded):
    """Images that take a moment only the first time."""

    def __init__(self, time):  # noqa: F811
        super().__init__(time)
        self.known = set()

    def __getitem__(self, i):
        return (torch.ones(64), 0) if i in self.known else self.known.add(i) or super().__getitem__(i)


@pytest.mark.parametrize(("data", "batch_s"), [(Decoded, 0.016), (Kept, 0.0)])
def test_a_batch_is_loaded_again_with_the_random_numbers_left_as_they_are(time, data, batch_s):  # noqa: F811
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(data(time), batch_size=8, shuffle=True, generator=generator)
    before = [generator.get_state(), torch.get_rng_state()]
    assert own_loop.again_s(loader) == pytest.approx(batch_s, abs=1e-3)
    assert all(torch.equal(*pair) for pair in zip(before, [generator.get_state(), torch.get_rng_state()], strict=True))


def test_what_workers_and_streams_load_is_not_loaded_again(time):  # noqa: F811
    assert own_loop.again_s(DataLoader(Decoded(time), num_workers=1)) is None
    assert own_loop.again_s([1, 2]) is None


class Loader:
    """Batches from a place in a file, as in nanoGPT's tutorials."""

    def __init__(self):
        self.position, self.order = 0, [3, 1, 2]

    def next_batch(self):
        self.position += 1
        self.order.reverse()
        return torch.randn(16, 64), labels(16)


@pytest.mark.parametrize("warm", [False, True], ids=["new", "trained before"])
def test_what_experiments_change_is_put_back(warm):
    model, losses, loader, counts = network(), [], Loader(), {"steps": 0}
    mean = [torch.zeros(10)]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
    n = 0

    def step(batch):
        nonlocal n
        optimizer.zero_grad()
        out = model(batch[0] * random.random() * float(np.random.rand()))
        loss = cross_entropy(out, batch[1])
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        mean[0].add_(out.detach().mean(0))
        n += 1
        counts["steps"] += 1

    for _ in range(3 * warm):
        step(loader.next_batch())

    def everything():
        return copy.deepcopy(
            {
                "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                "gradients": [p.grad for p in model.parameters()], "losses": losses, "mean": mean, "n": n,
                "counts": counts, "loader": vars(loader), "torch": torch.get_rng_state(), "python": random.getstate(),
                "numpy": np.random.get_state()[1], "mode": model.training,
            }
        )  # fmt: skip

    before, gradients = everything(), [p.grad for p in model.parameters()]
    steptime.diagnose(step, loader.next_batch, budget_s=0.3, ceilings=CEILINGS)
    torch.testing.assert_close(everything(), before, rtol=0, atol=0, equal_nan=True)
    assert all(p.grad is grad for p, grad in zip(model.parameters(), gradients, strict=True))
    step(loader.next_batch())
    assert everything()["n"] == before["n"] + 1


def test_tensors_that_torch_compile_traces_with_are_passed_over():
    with FakeTensorMode():
        fake = torch.nn.Parameter(torch.zeros(4))  # alive, as after a compilation
    weight = torch.zeros(4, requires_grad=True)
    with unchanged(lambda: (fake, weight)):
        weight.data.fill_(1.0)
    assert torch.equal(weight, torch.zeros(4))


def test_occasional_work_shorter_than_the_time_between_samples_counts_whole():
    usual, longer = (lambda: Lines({("train", "a.py", 1): 1e-3})), ("log", "a.py", 2)
    turns = [Step(step_s=1e-3, lines=usual()) for _ in range(60)]
    for n, i in enumerate([4, 9, 19, 22, 31, 38, 44, 47, 58]):  # a sample falls into every second one
        turns[i] = Step(step_s=8e-3, lines=Lines({longer: 0.02} if n % 2 else {}))
    found = seen(turns, Lines())
    assert found.seconds_of[OCCASIONAL] == pytest.approx(9 * 7e-3 / 60)
    assert found.where[OCCASIONAL] == "log (a.py, line 2)"


def test_loops_of_the_last_places_in_the_code_alone_are_kept():
    for line in range(2 * own_loop._PLACES):
        code = compile("\n" * line + "watched = steptime.watch([1], say=print)", "a script", "exec")
        exec(code, {"steptime": steptime})
    assert len(own_loop._LOOPS) == own_loop._PLACES


def test_the_time_of_a_batch_loaded_again_includes_that_of_picking_its_rows(time):  # noqa: F811
    class Grouped:
        def __iter__(self):
            for first in range(0, 64, 8):
                time.work(0.03)
                yield [*range(first, first + 8)]

    assert own_loop.again_s(DataLoader(Kept(time), batch_sampler=Grouped())) == pytest.approx(0.03, abs=1e-3)
