"""Loops that are watched as a script runs them; and what experiments put back."""

import copy
import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy
from torch.optim import optimizer
from torch.utils.data import DataLoader

import steptime
from steptime.errors import TooLittleSeen
from steptime.judge.divided_loop import OwnWork, slowest_rank
from steptime.limits import OCCASIONAL
from steptime.loop import script_loop
from steptime.loop.reloaded_batches import again_s
from steptime.loop.turn_patterns import seen
from steptime.loop.turns import Turn
from steptime.measure import operator_timing, training_state
from steptime.measure.operator_timing import OperatorCall, waits_inside_s
from steptime.measure.stack_samples import Lines
from steptime.measure.training_state import unchanged
from test_steptime import loops_communication
from test_steptime.loop_parts import labels, small_batch, small_step
from test_steptime.loops_input import Decoded
from test_steptime.virtual_time import CEILINGS

pytestmark = pytest.mark.slow
TURNS = 11  # besides those that are watched: at the start, and to time operators


def network():
    return nn.Sequential(
        nn.Linear(64, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(32, 10),
    )


class Trainer:
    """As Hugging Face's: it has the loop, and the caller calls train()."""

    def __init__(self, model, dataset, max_steps):
        self.model = model
        self.dataset = dataset
        self.max_steps = max_steps
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.global_step = 0

    def train(self):
        while self.global_step < self.max_steps:
            for inputs, wanted in DataLoader(self.dataset, batch_size=16, shuffle=True):
                cross_entropy(self.model(inputs), wanted).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.global_step += 1


def test_a_loader_is_watched_over_epochs_in_place_of_the_scripts_own(time):
    pages = []
    loader = DataLoader(Decoded(time), batch_size=16)
    watched = steptime.watch(
        loader, steps=8, ceilings=CEILINGS, device="cpu", say=pages.append
    )
    assert len(watched) == len(loader)
    assert watched.batch_size == 16
    train = small_step()
    for _epoch in range(6):
        for batch in watched:
            train(batch)
    assert pages[0].dominant == "input"
    assert pages[0].line.startswith("__getitem__")
    assert watched.limit is pages[0]


class Computed(Decoded):
    """Images that are computed by an operator, and whether one is just now."""

    is_loading = False

    def __getitem__(self, i):
        image, label = super().__getitem__(i)
        self.is_loading = True
        sines = torch.sin(image)
        self.is_loading = False
        return sines, label


def test_a_datasets_operators_are_not_timed(time, monkeypatch):
    dataset = Computed(time)
    loading = []
    usual = operator_timing.CallTimer._timed

    def timed(*args):
        loading.append(dataset.is_loading)
        return usual(*args)

    monkeypatch.setattr(operator_timing.CallTimer, "_timed", timed)
    train = small_step()
    watched = steptime.watch(
        DataLoader(dataset, batch_size=16),
        steps=8,
        ceilings=CEILINGS,
        device="cpu",
        say=lambda page: None,
    )
    for _epoch in range(6):
        for batch in watched:
            train(batch)
    assert loading
    assert not any(loading)


def test_a_whole_training_is_left_when_it_has_been_seen_and_is_as_before(time):
    trainer = Trainer(network(), Decoded(time), max_steps=10**6)
    before = copy.deepcopy(trainer.model.state_dict())
    shown = steptime.diagnose(trainer.train, steps=6, ceilings=CEILINGS, device="cpu")
    assert shown.dominant == "input"
    assert shown.line.startswith("__getitem__")
    assert trainer.global_step == 0
    assert not trainer.optimizer.state
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_loop_that_is_too_short_says_how_many_steps_it_takes():
    watched = steptime.watch(
        [(torch.randn(4, 64), labels(4))] * 5, steps=8, ceilings=CEILINGS, say=print
    )
    for _ in watched:
        pass
    with pytest.raises(
        TooLittleSeen, match=f"ended after 5 steps, and {8 + TURNS} are needed"
    ):
        watched.limit  # noqa: B018


def test_a_loop_that_ends_early_is_judged_by_the_turns_that_it_had(time):
    def loaded():
        time.work(0.02)
        return small_batch()

    watched = steptime.watch(
        loaded, steps=200, ceilings=CEILINGS, device="cpu", say=str
    )
    train = small_step()
    for _ in range(60):
        train(watched())
    assert watched.limit.dominant == "input"
    # 3 of 60 turns come first, and of 8 the operators are timed
    assert watched.limit.evidence[0].startswith("Watched: 49 steps")


_SHORT_SCRIPT = """
import torch, steptime
from steptime import Ceilings

ceilings = Ceilings("planted", {"float32": 1e9}, 1e9, 1)
layer = torch.nn.Linear(8, 8)
for x in steptime.watch([torch.randn(4, 8)] * STEPS, ceilings=ceilings):
    layer(x).sum().backward()
    layer.weight.data -= 0.1 * layer.weight.grad
print("the end")
"""


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (60, "Watched: 49 steps"),
        (9, "ended after 9 steps, and 31 are needed"),
        (300, "Watched: 200 steps"),
    ],
)
def test_a_script_gets_one_page_at_its_end_or_before_and_needs_no_optimizer(
    steps, words
):
    script = _SHORT_SCRIPT.replace("STEPS", str(steps))
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    shown = ran.stdout + ran.stderr
    assert shown.count("\nWatched: ") == (steps > 31)
    at_its_end = shown.index(words) > shown.index("the end")
    assert at_its_end == (steps < 211)


def test_what_starting_an_iterator_takes_is_input(time):
    class Started:
        def __iter__(self):
            time.work(0.2)  # as that of new workers
            return iter([small_batch()] * 4)

    pages = []
    train = small_step()
    watched = steptime.watch(
        Started(), steps=30, ceilings=CEILINGS, device="cpu", say=pages.append
    )
    for _epoch in range(12):
        for batch in watched:
            train(batch)
    assert pages[0].dominant == "input"
    assert pages[0].line.startswith("__iter__")


def test_two_watches_that_other_code_calls_end_at_the_same_step(time):
    pages = []
    train = small_step()
    options = {"steps": 4, "ceilings": CEILINGS, "device": "cpu", "say": pages.append}
    loader = [small_batch()] * 20

    def another():
        return steptime.watch(loader, **options)

    for _pair in zip(steptime.watch(loader, **options), another(), strict=True):
        train(loader[0])
    assert len(pages) == 2
    assert not optimizer._global_optimizer_post_hooks


def test_a_loop_that_calls_watch_in_each_epoch_is_watched_once_and_another_model_anew(
    time,
):
    pages = []
    hooks = []

    def fit(train, epochs):
        for _epoch in range(epochs):
            loader = DataLoader(Decoded(time), batch_size=16)
            batches = steptime.watch(
                loader, steps=8, ceilings=CEILINGS, device="cpu", say=pages.append
            )
            for batch in batches:
                train(batch)
                hooks.append(len(optimizer._global_optimizer_post_hooks))
        return batches

    for already in (0, 1):  # the second model is another loop of the same code
        del hooks[:]
        last = fit(small_step(), epochs=12)
        assert [page.dominant for page in pages[already:]] == ["input"]
        assert last.limit is pages[already]
        assert max(hooks) == 1
        assert hooks[-1] == 0, "the last epochs weren't watched"


def test_without_an_optimizer_each_batch_is_a_turn(time):
    pages = []
    model = network().eval()
    loader = DataLoader(Decoded(time, 1e-3), batch_size=2)
    for images, _labels in steptime.watch(
        loader, steps=8, ceilings=CEILINGS, say=pages.append
    ):
        model(images)
    assert pages[0].dominant == "input"


class Kept(Decoded):
    """Images that take a moment only the first time."""

    def __init__(self, time):
        super().__init__(time)
        self.kept = set()

    def __getitem__(self, i):
        if i in self.kept:
            return torch.ones(64), 0
        self.kept.add(i)
        return super().__getitem__(i)


@pytest.mark.parametrize(("data", "batch_s"), [(Decoded, 0.016), (Kept, 0.0)])
def test_a_batch_is_loaded_again_with_the_random_numbers_left_as_they_are(
    time, data, batch_s
):
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(data(time), batch_size=8, shuffle=True, generator=generator)
    before = [generator.get_state(), torch.get_rng_state()]
    assert again_s(loader) == pytest.approx(batch_s, abs=1e-3)
    assert all(
        torch.equal(*pair)
        for pair in zip(
            before, [generator.get_state(), torch.get_rng_state()], strict=True
        )
    )


def test_what_workers_and_streams_load_is_not_loaded_again(time):
    assert again_s(DataLoader(Decoded(time), num_workers=1)) is None
    assert again_s([1, 2]) is None


class Loader:
    """Batches from a place in a file, as in nanoGPT's tutorials."""

    def __init__(self):
        self.position = 0
        self.order = [3, 1, 2]

    def next_batch(self):
        self.position += 1
        self.order.reverse()
        return torch.randn(16, 64), labels(16)


@pytest.mark.parametrize("warm", [False, True], ids=["new", "trained before"])
def test_what_experiments_change_is_put_back(warm):
    model = network()
    losses = []
    loader = Loader()
    counts = {"steps": 0}
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
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "gradients": [p.grad for p in model.parameters()],
                "losses": losses,
                "mean": mean,
                "n": n,
                "counts": counts,
                "loader": vars(loader),
                "torch": torch.get_rng_state(),
                "python": random.getstate(),
                "numpy": np.random.get_state()[1],
                "mode": model.training,
            }
        )

    before = everything()
    gradients = [p.grad for p in model.parameters()]
    steptime.diagnose(step, loader.next_batch, budget_s=0.3, ceilings=CEILINGS)
    torch.testing.assert_close(everything(), before, rtol=0, atol=0, equal_nan=True)
    assert all(
        p.grad is grad for p, grad in zip(model.parameters(), gradients, strict=True)
    )
    step(loader.next_batch())
    assert everything()["n"] == before["n"] + 1


def test_a_counter_far_below_the_trainer_is_put_back_or_the_page_says_that_it_is_not(
    monkeypatch,
):
    class Level:
        def __init__(self, depth):
            self.steps = 0
            self.below = [Level(depth - 1)] if depth else []

    trainer = Level(12)
    lowest = trainer
    while lowest.below:
        (lowest,) = lowest.below

    def fit():
        assert trainer
        lowest.steps += 1

    with unchanged(fit) as left:
        fit()
    assert (lowest.steps, left) == (0, ())
    monkeypatch.setattr(training_state, "_MOST_VALUES", 10)
    with unchanged(fit) as left:
        pass
    assert "aren't put back" in left[0]


def test_tensors_that_torch_compile_traces_with_are_passed_over():
    with FakeTensorMode():
        fake = torch.nn.Parameter(torch.zeros(4))  # alive, as after a compilation
    weight = torch.zeros(4, requires_grad=True)
    with unchanged(lambda: (fake, weight)):
        weight.data.fill_(1.0)
    assert torch.equal(weight, torch.zeros(4))


def test_occasional_work_shorter_than_the_time_between_samples_counts_whole():
    usual = Lines({("train", "a.py", 1): 1e-3})
    longer = ("log", "a.py", 2)
    turns = [Turn(step_s=1e-3, lines=usual.copy()) for _ in range(60)]
    # a sample falls into every second one
    for n, i in enumerate([4, 9, 19, 22, 31, 38, 44, 47, 58]):
        turns[i] = Turn(step_s=8e-3, lines=Lines({longer: 0.02} if n % 2 else {}))
    shown = seen(turns, Lines())
    assert shown.seconds_of[OCCASIONAL] == pytest.approx(9 * 7e-3 / 60)
    assert shown.where[OCCASIONAL] == "log (a.py, line 2)"


def test_long_steps_in_a_row_count_for_all_steps_and_no_more():
    line = ("train", "a.py", 1)
    turns = [Turn(step_s=1e-3, lines=Lines({line: 1e-3})) for _ in range(200)]
    for turn in turns[:20]:  # as those before a cache is filled
        turn.step_s = 0.1
        turn.lines = Lines({("fill", "a.py", 2): 0.1})
    shown = seen(turns, Lines())
    assert shown.seconds_of[OCCASIONAL] == pytest.approx(20 * 0.099 / 200)


def test_loops_of_the_last_places_in_the_code_alone_are_kept():
    for line in range(2 * script_loop._PLACES):
        code = compile(
            "\n" * line + "watched = steptime.watch([1], say=print)", "a script", "exec"
        )
        exec(code, {"steptime": steptime})
    assert len(script_loop._LOOPS) == script_loop._PLACES


def test_the_time_of_a_batch_loaded_again_includes_that_of_picking_its_rows(time):
    class Grouped:
        def __iter__(self):
            for first in range(0, 64, 8):
                time.work(0.03)
                yield [*range(first, first + 8)]

    assert again_s(DataLoader(Kept(time), batch_sampler=Grouped())) == pytest.approx(
        0.03, abs=1e-3
    )


@pytest.mark.complete
@pytest.mark.parametrize(
    ("build", "words"),
    [
        (loops_communication.one_rank_logs, "most of it log_to_server (loops_comm"),
        (
            loops_communication.one_rank_loads_slowly,
            "most of it next_batch (loops_comm",
        ),
        (loops_communication.many_weights_between_ranks, "they wait for the network"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_watched_script_of_two_ranks_names_the_slow_one_and_its_line(
    tmp_path, build, words
):
    arguments = str(tmp_path / "meeting"), str(tmp_path / "page"), build
    worker = loops_communication.watched_in_virtual_time
    torch.multiprocessing.spawn(worker, arguments, nprocs=2)
    straggler = "Rank 1 is the slowest"
    network = "All ranks work as long"
    for rank in range(2):
        page = json.loads((tmp_path / f"page-{rank}").read_text())
        assert words in page["text"]
        assert (straggler in page["text"]) != (network in page["text"])
    shares = json.loads((tmp_path / "page-0").read_text())["shares"]
    waits = "communication" if network in page["text"] else "other ranks"
    assert shares[waits] > 0.5


def test_what_a_backward_pass_waits_for_other_ranks_is_what_follows_its_exchanges():
    """As DistributedDataParallel begins them, waits, and copies what has come."""
    names = ["mm", "c10d.allreduce_", "mul", "c10d.allreduce_"]
    names += ["as_strided", "copy_", "as_strided", "copy_", "add_.Tensor", "mul"]
    before_s = [1.0, 1.0, 0.0, 1.0, 10.0, 0.0, 20.0, 0.0, 0.5, 1.0]
    calls = [
        OperatorCall(name, 0.0, 0.0, 0.0, before_s=seconds)
        for name, seconds in zip(names, before_s, strict=True)
    ]
    assert waits_inside_s(calls) == 30.5


def test_a_slow_rank_is_named_by_the_line_on_which_it_takes_longer_than_others():
    quick = OwnWork(0.01, 0.1, 0.2, "load (a.py, line 1)", "train (a.py, line 2)")
    loads = quick._replace(input_s=0.1, exchange_s=0.0)
    works = quick._replace(step_s=0.3, exchange_s=0.0)
    assert "Rank 1 is the slowest" in slowest_rank([quick, loads])
    assert "load (a.py" in slowest_rank([quick, loads])
    assert "train (a.py" in slowest_rank([works, quick])
    assert "wait for the network" in slowest_rank([quick, quick])
    short = quick._replace(exchange_s=1e-3)
    assert "exchanges take little of a step" in slowest_rank([short, short])


def watched(batches, pages, **options):
    """`batches` in a loop that is watched for 20 turns."""
    options = {"steps": 20, "ceilings": CEILINGS, "say": pages.append} | options
    return steptime.watch(batches, **options)


def test_an_evaluation_without_gradients_is_judged_as_a_training_is(time):
    model = network().eval()
    pages = []
    with torch.inference_mode():
        for inputs, _ in watched([small_batch()] * 40, pages):
            model(inputs)
    assert pages[0].evidence[0].startswith("Watched: 20 steps")


def test_a_training_goes_on_that_can_not_be_judged(time, capsys):
    def failing():
        raise RuntimeError("out of memory")

    train = small_step()
    trained = [
        train(batch) for batch in watched([small_batch()] * 60, [], ceilings=failing)
    ]
    assert len(trained) == 60
    assert capsys.readouterr().err.count("can't be judged: out of memory") == 1
    assert not optimizer._global_optimizer_post_hooks


def test_a_loop_without_an_optimizer_that_calls_watch_in_each_epoch_has_one_page(time):
    pages = []
    for _epoch in range(4):
        loader = DataLoader(Decoded(time), batch_size=16)
        for inputs, _ in watched(loader, pages, steps=4):
            inputs.sum()
    assert len(pages) == 1


def test_a_loader_alone_is_named_with_the_line_that_draws_from_it(time):
    """Its batches come from a library: no line of the script makes them."""
    pages = []
    rows = torch.utils.data.TensorDataset(torch.ones(400, 8))
    for _batch in watched(DataLoader(rows, batch_size=8), pages):
        time.work(1e-6)
    (page,) = pages
    test = test_a_loader_alone_is_named_with_the_line_that_draws_from_it.__name__
    line = page.lines["input"]
    assert line.startswith(f"{test}, drawing a batch (test_own_loops.py")
    assert "this is the loader alone" in page.evidence[-1]
    assert page.shares["launch overhead"] == 0


def test_the_loader_of_a_training_that_others_run_is_looked_at(time):
    pages = []
    train = small_step()
    loader = DataLoader(Decoded(time), batch_size=4)
    begun_before = iter(loader)
    for batches in (loader, begun_before):
        with steptime.watching(
            steps=2, ceilings=CEILINGS, device="cpu", say=pages.append
        ):
            for batch in batches:
                train(batch)
    assert all("num_workers=0" in " ".join(page.remarks) for page in pages)


def test_a_step_of_several_batches_has_no_slow_first_epoch(time):
    pages = []
    weight = torch.zeros(1, requires_grad=True)
    accumulating = torch.optim.SGD([weight])
    loader = DataLoader(Decoded(time), batch_size=1)
    for i, _batch in enumerate(watched(loader, pages, steps=4)):
        (weight * 2).sum().backward()
        if i % 4 == 3:
            accumulating.step()
    assert pages[0].shares["first epoch"] == 0


def test_weights_on_a_cpu_are_watched_there_whatever_else_there_is():
    devices = []
    loop = script_loop.OwnLoop(2, "cuda", lambda own: devices.append(own.device), str)
    weights = torch.nn.Linear(2, 2)
    sgd = torch.optim.SGD(weights.parameters())
    loop.turn()
    for _ in range(13):
        weights(torch.ones(2)).sum().backward()
        sgd.step()
    loop.close()
    assert devices == ["cpu"]
