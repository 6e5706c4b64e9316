"""The limit and the cause of each planted loop are named; where nothing dominates, that
is said.
"""

import collections
import json

import pytest
import torch

import steptime
from test_steptime import loops_communication
from test_steptime.planted_loops import (
    BALANCED,
    CEILINGS,
    MENDED,
    RANKED,
    SCRIPTS,
    STEPS,
    WATCHED,
    mixture,
)

pytestmark = pytest.mark.slow  # runs whole training loops
# A few steps of many operators show them.
OPERATORS = "launch overhead", "memory bandwidth", "arithmetic", "too many threads"


def some_of(loops, n):
    """Parameters of which every run has n of each limit, and a nightly run all."""
    params = []
    of_limit = collections.Counter()
    for loop in loops:
        marks = [pytest.mark.nightly] if of_limit[loop.limit] >= n else []
        params.append(pytest.param(loop, id=loop.name, marks=marks))
        of_limit[loop.limit] += 1
    return params


def check(page, loop):
    if loop.doubtful and page.doubt:
        return
    assert page.dominant == loop.limit, page
    assert page.line.startswith(loop.cause), page
    assert sum(page.shares.values()) == pytest.approx(1)
    if loop.limit is None:
        assert "Nothing dominates" in str(page)
    elif loop.limit == "unknown":
        assert str(page).startswith("What limits this loop is unknown.")
    else:
        verb = (
            "limit" if loop.limit in ("page faults", "too many threads") else "limits"
        )
        assert str(page).startswith(f"{loop.limit.capitalize()} {verb} this loop")
    if loop.cause:
        assert f"Most of it: {page.line}." in str(page)


@pytest.mark.parametrize("loop", some_of(STEPS, 1))
def test_a_step_is_named_with_its_limit_and_its_cause(time, loop):
    budget_s = 0.1 if loop.limit in OPERATORS else 8
    if loop.name == "validated now and then":
        budget_s = 24  # in 8 s, it would be seen once, and a page on that is in doubt
    step, batches = loop.build(time)
    page = steptime.find_bottleneck(
        step, batches, budget_s=budget_s, ceilings=CEILINGS, device="cpu"
    )
    check(page, loop)


@pytest.mark.parametrize("loop", some_of(SCRIPTS, 1))
def test_a_whole_training_is_named(time, loop):
    page = steptime.diagnose(
        lambda: loop.build(time), steps=80, ceilings=CEILINGS, device="cpu"
    )
    check(page, loop)


@pytest.mark.parametrize("loop", some_of(WATCHED, 1))
def test_a_script_that_watches_its_loader_is_named(time, loop):
    pages = []

    def watch(batches):
        return steptime.watch(
            batches, steps=80, ceilings=CEILINGS, device="cpu", say=pages.append
        )

    loop.build(time, watch)
    (page,) = pages  # also where the script calls watch twice
    check(page, loop)


@pytest.mark.parametrize("kinds", BALANCED, ids=", ".join)
def test_in_a_balanced_loop_nothing_dominates(time, kinds):
    page = steptime.find_bottleneck(
        *mixture(time, *kinds), budget_s=0.5, ceilings=CEILINGS
    )
    assert page.dominant is None, page
    assert "Nothing dominates" in str(page)
    for limit in kinds:
        assert page.shares[limit] == pytest.approx(1 / len(kinds), abs=0.03)


def some_mended(n):
    """Parameters of which every run has the first n, and a nightly run all."""
    return [
        pytest.param(
            *pair,
            id=pair[0].__name__.replace("_", " "),
            marks=[pytest.mark.nightly] if i >= n else [],
        )
        for i, pair in enumerate(MENDED)
    ]


@pytest.mark.parametrize(("build", "build_mended"), some_mended(4))
def test_no_bound_lies_below_what_the_mended_loop_gains(time, build, build_mended):
    options = {"budget_s": 0.5, "ceilings": CEILINGS, "device": "cpu"}
    page = steptime.diagnose(*build(time), **options)
    mended = steptime.find_bottleneck(*build_mended(time), **options)
    truth = page.loop_s / mended.loop_s
    # an equal work may round differently, and a mean over few turns has more of one
    assert page.bound(page.largest) > 0.97 * truth, (truth, page)
    for name in page.shares:
        assert page.gain(name) is None or "at most" not in page.words(name), page
    assert str(page).count("at most") <= sum(
        share > 0 and page.gain(name) is None for name, share in page.shares.items()
    ) + (page.gain(page.largest) is None)


def spawned(folder, worker, *loop):
    """What each of two ranks says of a loop."""
    arguments = str(folder / "meeting"), str(folder / "limit"), *loop
    torch.multiprocessing.spawn(worker, arguments, nprocs=2)
    return [json.loads((folder / f"limit-{rank}").read_text()) for rank in range(2)]


@pytest.mark.complete
@pytest.mark.parametrize(
    ("wanted", "build"),
    [pytest.param(*ranks, id=ranks[1].__name__) for ranks in RANKED],
)
def test_a_rank_that_waits_for_another_is_told_from_the_one_that_is_slow(
    tmp_path, wanted, build
):
    pages = spawned(tmp_path, loops_communication.rank_in_virtual_time, build)
    for page, (limit, cause) in zip(pages, wanted, strict=True):
        assert page["doubt"] or (page["dominant"] == limit and cause in page["line"]), (
            page["text"]
        )


@pytest.mark.complete
@pytest.mark.parametrize("name", loops_communication.EXCHANGES)
def test_planted_communication_is_named(tmp_path, name):
    for page in spawned(tmp_path, loops_communication.exchange_in_virtual_time, name):
        assert page["dominant"] == "communication", page["text"]
        assert "exposed communication takes" in page["text"]
    assert len(list(tmp_path.glob("limit-*-trace.json"))) == 2
