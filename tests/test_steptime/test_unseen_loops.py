"""Loops whose classes were written down before they were judged are named, or the page says that it is in doubt."""

import json

import pytest
import torch

import steptime
from labkit.core.paths import ROOT
from tests.selection import sampled
from tests.test_steptime import fourth_loops, later_loops, planted_loops, python_loops, third_loops, unseen_loops
from tests.test_steptime.planted_loops import CEILINGS
from tests.test_steptime.test_bottleneck import on_one_thread, time  # noqa: F401  # fixtures

pytestmark = pytest.mark.slow  # runs whole training loops
SETS = unseen_loops, later_loops, third_loops, fourth_loops, python_loops
STEPS = {name: loop for loops in SETS for name, loop in loops.STEPS.items()}
SCRIPTS = {name: loop for loops in SETS for name, loop in loops.SCRIPTS.items()}
WATCHED = {name: loop for loops in SETS for name, loop in loops.WATCHED.items()}
RANKED = {name: loop for loops in SETS for name, loop in loops.RANKED.items()}


@pytest.mark.parametrize("loops", SETS, ids=lambda module: module.__name__[21:])
def test_the_readme_has_the_figures_of_the_first_looks(loops):
    names = {*loops.STEPS, *loops.SCRIPTS, *loops.WATCHED, *loops.RANKED}
    assert {*loops.FIRST_LOOK, *loops.PLANTED_WRONGLY} <= names
    planted, wrong = len(names) - len(loops.PLANTED_WRONGLY), len(loops.FIRST_LOOK)
    undoubted = sum("in doubt" not in words for words in loops.FIRST_LOOK.values())
    sentence = f"{planted - wrong} of {planted} rightly, {undoubted} wrongly without a doubt"
    assert sentence in " ".join((ROOT / "steptime" / "README.md").read_text(encoding="utf-8").split())


def judged(found, limit, place):
    assert found.doubt or (found.dominant == limit and (place in found.line or limit is None)), found


@pytest.mark.parametrize("name", sampled(STEPS, 6))
def test_steps_that_people_write_are_named(time, name):  # noqa: F811
    limit, place, make = STEPS[name]
    judged(steptime.find_bottleneck(*make(time), budget_s=8, ceilings=CEILINGS, device="cpu"), limit, place)


@pytest.mark.parametrize("name", sampled(SCRIPTS, 2))
def test_trainings_that_people_write_are_named(time, name):  # noqa: F811
    limit, place, script = SCRIPTS[name]
    judged(steptime.diagnose(lambda: script(time), ceilings=CEILINGS, device="cpu"), limit, place)


@pytest.mark.parametrize("name", sampled(WATCHED, 1))
def test_scripts_that_watch_their_loader_are_told(time, name):  # noqa: F811
    (limit, place, script), found = WATCHED[name], []
    script(time, lambda batches: steptime.watch(batches, ceilings=CEILINGS, device="cpu", say=found.append))
    judged(found[0], limit, place)


@pytest.mark.complete
@pytest.mark.parametrize("name", RANKED)
def test_a_rank_that_waits_for_another_is_told_from_the_one_that_is_slow(tmp_path, name):
    *wanted, make = RANKED[name]
    given = str(tmp_path / "meeting"), str(tmp_path / "limit"), make
    torch.multiprocessing.spawn(planted_loops.rank_in_virtual_time, given, nprocs=2)
    for rank, (limit, place) in enumerate(wanted):
        found = json.loads((tmp_path / f"limit-{rank}").read_text())
        assert found["doubt"] or (found["dominant"] == limit and place in found["line"]), found["text"]
