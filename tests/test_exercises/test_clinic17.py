"""Notebook 17's broken trainings: every cause breaks a run, its mends heal it, and
nothing but a look tells it.

The ranks are run in turn, so that no timeout depends on this machine. They leave what
real ranks leave.
"""

import itertools
import json
import math
import random
import re
from collections import Counter, defaultdict
from dataclasses import asdict, replace

import pytest

from exercises.nb17 import cases, clinic, evidence, guard, health
from exercises.nb17.device_memory import MIB, DeviceMemory, OutOfMemory
from exercises.nb17.health import run as on_real_ranks  # before health.run is replaced
from exercises.nb17.settings import Fault, Job, rows_of, runs_on
from labkit.lesson.checks import NotYet
from tests.test_exercises import ranks_in_turn

COLLECTIVES = ("all_reduce", "barrier", "broadcast")
VARIANTS = list(cases.VARIANTS)
SEEDS = range(50)


@pytest.fixture(autouse=True)
def in_turn(monkeypatch):
    ranks_in_turn.use(monkeypatch)


def drawn(cause, kind, seed):
    return cases.drawn({cause: kind}, random.Random(f"{cause} {kind} {seed}"))


def right_mends(cause, job, fault):
    """All mends that should mend a broken run."""
    missing = set(Job().on_all_ranks) - set(job.on_all_ranks)
    cudas = [
        v
        for v in ("11.8", "12.4", "12.6", "12.8", "13.0")
        if runs_on(v, fault.driver, fault.gpu)
    ]
    other = (
        [{"replace_node": fault.slow_loader[0]}] if len(fault.slow_loader) == 1 else []
    )
    return {
        "a rank calls another collective": [{"on_all_ranks": work} for work in missing],
        "a GPU is lost": [{"replace_node": fault.lost_gpu[0]}],
        "memory is in pieces": [{"allocator": "expandable segments"}],
        "memory leaks": [{"kept_for_metrics": "numbers"}],
        "the model is too large for the GPU": [
            {"recompute": True},
            {"precision": "bfloat16"},
        ],
        "float16 overflows": [{"precision": "bfloat16"}, {"precision": "float32"}],
        "the learning rate is too high": [
            {"learning_rate": 0.1},
            {"learning_rate": 0.15},
        ],
        "bad images": [
            {"image_cache": "verified"},
            {"replace_node": fault.bad_images[0]},
        ],
        "ranks have different weights": [
            (
                {"start_weights": "rank 0"}
                if fault.stale_rank >= 0
                else {"reduced": "every layer"}
            )
        ],
        "the loss is divided by a wrong count": [{"divide_by": "images of all ranks"}],
        "one GPU is slow": [{"replace_node": fault.slow_rank}],
        "the loader is too slow": [*({"loader_workers": n} for n in (3, 4, 5)), *other],
        "the CPU computes": [
            {"update_driver": True},
            *({"torch_cuda": version} for version in cudas),
        ],
        "the network is slow": [
            (
                {"nccl_net": "IB"}
                if fault.slow_link < 0
                else {"replace_node": fault.slow_link}
            )
        ],
    }[cause]


def cases_of_each_kind():
    """One cause for each alarm; the others are for `make test-all`, and other seeds
    nightly.
    """
    seen = set()
    for cause, kind in VARIANTS:
        marks = [pytest.mark.complete] if kind in seen else []
        seen.add(kind)
        yield pytest.param(cause, kind, 0, marks=marks)
        yield pytest.param(cause, kind, 1, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("cause", "kind", "seed"), [*cases_of_each_kind()])
def test_a_cause_breaks_a_run_as_its_alarm_says_and_its_mends_heal_it(
    cause, kind, seed
):
    broken = drawn(cause, kind, seed)
    wrong = " ".join(
        health.complaints(broken.launched, broken.job, broken.job, broken.fault)
    )
    words = {
        "nan": "The loss is NaN",
        "stopped": "It ends after",
        "slow": "A step takes",
        "worse": "weights",
    }
    assert words[kind] in wrong
    if kind == "worse":
        assert health.first_nan(broken.launched) is None
    if kind == "slow":
        ratio = health.step_s(broken.launched) / health.step_s(health.healthy())
        assert f"{ratio:.1f} times" in broken.alarm()
    for mend in right_mends(cause, broken.job, broken.fault):
        said, minutes = broken.judge(cause, mend)
        assert said.endswith("and is healthy.")
        assert minutes >= 10


def alarm_reader(alarm, seen):
    """The cause that an alarm had most often in other runs, by its words and by the
    nearest of its numbers.
    """
    words = re.sub(r"[\d.]+", "#", alarm)
    numbers = [*map(float, re.findall(r"[\d.]*\d", alarm))]
    near = sorted(
        seen[words],
        key=lambda one: [abs(a - b) for a, b in zip(one[0], numbers, strict=True)],
    )
    return Counter(cause for _, cause in near[:15]).most_common(1)[0][0]


@pytest.mark.parametrize(
    "number", [number for number in cases.ALARM_OF if number != "17.6"]
)
def test_who_reads_only_alarms_guesses(number):
    """Over 50 seeds he does no better than 1 of the alarm's causes, within what luck
    gives (three deviations).
    """
    seen = defaultdict(list)
    for seed in range(100, 400):
        one = cases.broken(number, seed)
        numbers = [*map(float, re.findall(r"[\d.]*\d", one.alarm()))]
        seen[re.sub(r"[\d.]+", "#", one.alarm())].append((numbers, one.causes[0]))
    found = sum(
        alarm_reader(one.alarm(), seen) == one.causes[0]
        for one in (cases.broken(number, s) for s in SEEDS)
    )
    chance = 1 / sum(kind == cases.ALARM_OF[number] for _, kind in VARIANTS)
    assert (
        found / len(SEEDS) <= chance + 3 * (chance * (1 - chance) / len(SEEDS)) ** 0.5
    )


def changed_settings(one):
    """The configuration's table: setting -> its value in this run."""
    was = asdict(Job())
    return {name: now for name, now in asdict(one.job).items() if now != was[name]}


def seen_before(number):
    """How often each cause was that of a run in which a setting had changed, a pair of
    settings, or none of it mattered: of 300 other seeds.
    """
    counts = defaultdict(Counter)
    for seed in range(1000, 1300):
        one = cases.broken(number, seed)
        names = sorted(changed_settings(one))
        for key in ("", *names, *itertools.combinations(names, 2)):
            counts[key][one.causes] += 1
    return counts


def settings_of(cause, one):
    """The settings that mend a cause in a run."""
    return {name for mend in right_mends(cause, one.job, one.fault) for name in mend}


OLD_DECOYS = {
    "loader_workers",
    "time_limit_minutes",
    "learning_rate",
    "precision",
    "allocator",
    "clip_norm",
}


def size_of_change(name, value):
    """How many times larger or smaller a setting is; words count as 2."""
    before = asdict(Job())[name]
    if not isinstance(value, int | float) or math.isinf(before):
        return 2.0
    ratio = abs(value / before)
    return max(ratio, 1 / ratio)


# What can be played from the configuration alone: settings in the order in which they
# are reverted.
REVERTED = {
    "what isn't known to be harmless": lambda changes: [
        name for name in changes if name not in OLD_DECOYS
    ],
    "the largest change": lambda changes: sorted(
        changes, key=lambda name: -size_of_change(name, changes[name])
    ),
    "the smallest change": lambda changes: sorted(
        changes, key=lambda name: size_of_change(name, changes[name])
    ),
    "the first by name": sorted,
    "the last by name": lambda changes: sorted(changes, reverse=True),
    "the first of the table": list,
}


def no_better_than_chance(successes, tries, chance):
    return successes / tries <= chance + 3 * (chance * (1 - chance) / tries) ** 0.5


@pytest.mark.parametrize("number", cases.ALARM_OF)
def test_who_reads_only_the_configuration_guesses(number):
    """Who reverts a change by any rule, or names the cause that was the most frequent
    one beside such changes, does no better than who guesses among the alarm's causes.
    """
    seeds = range(300)
    runs = [cases.broken(number, seed) for seed in seeds]
    alarms = ("slow", "worse") if number == "17.6" else (cases.ALARM_OF[number],)
    chance = 1 / math.prod(sum(kind == a for _, kind in VARIANTS) for a in alarms)
    for rule, order in REVERTED.items():
        mended = sum(
            all(
                settings_of(cause, one) & {*order(changed_settings(one))[: len(alarms)]}
                for cause in one.causes
            )
            for one in runs
        )
        assert no_better_than_chance(mended, len(runs), chance), rule
    counts = seen_before(number)
    for keys_of in (
        lambda changes: [""],
        lambda changes: sorted(changes),
        lambda changes: [*itertools.combinations(sorted(changes), 2)],
    ):
        named = 0
        for one in runs:
            keys = keys_of(changed_settings(one))
            shares = Counter()
            for key in keys:
                total = counts[key].total() or 1
                for causes, times in counts[key].items():
                    shares[causes] = max(shares[causes], times / total)
            named += shares.most_common(1)[0][0] == one.causes
        assert no_better_than_chance(named, len(runs), chance)


@pytest.mark.parametrize("number", cases.ALARM_OF)
def test_all_changes_at_once_are_no_mend(number):
    one = cases.broken(number, 0)
    revert = {name: asdict(Job())[name] for name in changed_settings(one)}
    with pytest.raises(NotYet, match="Expected a mend that changes"):
        one.judge(list(one.causes), revert)


def test_a_setting_that_breaks_a_run_is_harmless_in_others():
    """Each setting that a cause changes is also changed where it breaks nothing."""
    breaks = {
        name
        for row in rows_of("variants")
        for name, values in json.loads(row["job"]).items()
    }
    harmless = set()
    for number in cases.ALARM_OF:
        for one in (cases.broken(number, seed) for seed in SEEDS):
            mends = [settings_of(cause, one) for cause in one.causes]
            harmless |= {*changed_settings(one)} - {*itertools.chain(*mends)}
    assert breaks <= harmless
    assert len(harmless) >= 14


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        pytest.param(*pair, marks=[] if i % 5 == 0 else [pytest.mark.nightly])
        for i, pair in enumerate(VARIANTS)
    ],
)
def test_to_revert_what_is_harmless_mends_nothing(cause, kind):
    one = drawn(cause, kind, 1)
    was = asdict(Job())
    for name in {*changed_settings(one)} - settings_of(cause, one):
        job = replace(one.job, **{name: was[name]})
        assert health.complaints(health.run(job, one.fault), job, one.job, one.fault)


def test_all_causes_occur_and_the_last_case_has_two():
    found = {
        cause
        for number in cases.ALARM_OF
        for seed in SEEDS
        for cause in cases.broken(number, seed).causes
    }
    assert found == set(cases.CAUSES)
    assert len(found) == 14
    assert all(len(cases.broken("17.6", seed).causes) == 2 for seed in SEEDS)
    # none but the ranks' number limits what a seed can draw
    for cause, kind in VARIANTS:
        assert (
            len(
                {
                    (one.job, one.fault)
                    for one in (drawn(cause, kind, seed) for seed in SEEDS)
                }
            )
            > 40
        )


def test_a_mend_of_all_with_a_cause_missing_costs_a_look_more_and_says_what_is_missing():
    """The mend stays, and isn't paid for a second time; which cause is missing is said
    by its alarm and not by its name.
    """
    case = clinic.Case("17.6", 51, cases.broken("17.6", 51))
    slow, worse = case.broken.causes
    mend = {"replace_node": 0, "divide_by": "images of all ranks"}
    at_once = case.broken.judge([slow, worse], mend)[1]
    for cause, mend_again in (
        ([slow], mend),
        (slow, mend),
        ([slow, "bad images"], mend),
    ):
        with pytest.raises(NotYet, match="is healthy: the mend stays") as refused:
            clinic.judge("17.6", case.answer(cause=cause, mend=mend_again, sure=0.5))
        assert worse not in str(refused.value)
    assert "The evaluation of the last checkpoint" in str(
        cases.broken("17.6", 51)._of_causes({slow})
    )
    swapped = dict(reversed(mend.items()))
    clinic.judge("17.6", case.answer(cause=[worse, slow], mend=swapped, sure=1))
    assert case.minutes == at_once + 3 * 10
    listed = clinic.Case("17.6", 51, cases.broken("17.6", 51))
    with pytest.raises(NotYet):
        clinic.judge("17.6", listed.answer(cause=list(cases.CAUSES), mend=mend, sure=1))
    assert listed.minutes > at_once + 100  # a list of all causes is no answer


@pytest.mark.complete
def test_two_causes_are_both_named_and_both_mended():
    broken = cases.broken("17.6", 0)
    slow, worse = (
        right_mends(cause, broken.job, broken.fault)[0] for cause in broken.causes
    )
    assert broken.judge(list(broken.causes), slow | worse)[0].endswith(
        "and is healthy."
    )
    assert broken.judge(broken.causes[::-1], worse | slow)[0].endswith(
        "and is healthy."
    )
    for causes, mend in (
        (broken.causes[0], slow | worse),
        (list(broken.causes), slow),
        (list(broken.causes), worse),
    ):
        with pytest.raises(NotYet, match=r"isn't healthy|That isn't all of the cause"):
            broken.judge(causes, mend)


def test_a_list_of_all_causes_is_not_told_which_are_wrong():
    broken = cases.broken("17.3a", 1)
    with pytest.raises(NotYet) as refused:
        broken.judge(list(cases.CAUSES), {"clip_norm": 1.0})
    assert str(refused.value).count("The cause isn't") == 1


# The looks that name a cause, and words that a healthy run's look hasn't.
TOLD = {
    ("one GPU is slow", "slow"): ("nvidia-smi", "HW Power Brake"),
    ("the CPU computes", "slow"): ("logs", "driver on your system is too old"),
    ("the loader is too slow", "slow"): (
        "loader",
        r"rank.\d +[\d.]*[1-9][\d.]* ms +0 ",
    ),
    ("the network is slow", "slow"): (
        "NCCL log",
        r"Rate: 10 Gb/s|Speed: 10000Mb/s",
    ),
    ("a GPU is lost", "stopped"): ("nvidia-smi", "ERR!"),
    ("a rank calls another collective", "stopped"): (
        "flight recorder",
        r"rank.\d  group 2, call 1: gloo:\w+",
    ),
    ("memory is in pieces", "stopped"): ("memory snapshot", "░░░"),
    ("the model is too large for the GPU", "stopped"): ("logs", "CUDA out of memory"),
    ("float16 overflows", "nan"): ("activations", r"\d\d,\d{3}\.\d.*inf"),
    ("bad images", "nan"): ("loader", "to inf"),
    ("bad images", "worse"): ("loader", "-1.4 to 0.6"),
    ("the learning rate is too high", "nan"): (
        "gradient norms",
        r"0\.\d+ +[\d.e+]+ / \d\d",
    ),
}


@pytest.mark.parametrize("pair", TOLD, ids=" ".join)
def test_a_look_shows_what_is_broken_and_not_in_a_healthy_run(pair):
    look, words = TOLD[pair]
    assert re.search(words, str(evidence.show(drawn(*pair, 0), look)))
    healthy = cases.BrokenRun((), Job(), Fault())
    assert look == "memory snapshot" or not re.search(
        words, str(evidence.show(healthy, look))
    )


def test_a_rate_that_is_too_high_shows_in_norms_and_a_leak_in_the_memory_after_a_step():
    """Both are told by numbers and not by words, since a harmless change has them too:
    norms are last week's at first and then aren't; the memory in use grows.
    """
    too_high = drawn("the learning rate is too high", "worse", 0)
    norms, last_week = (
        health.of(launched)[0].norms
        for launched in (too_high.launched, health.healthy(too_high.fault))
    )
    assert norms[0] == pytest.approx(last_week[0], rel=0.01)
    assert norms[-1] != pytest.approx(last_week[-1], rel=0.2)
    leak = health.of(drawn("memory leaks", "stopped", 0).launched)
    assert max(rank.used[-1] / rank.used[0] for rank in leak) > 1.3
    harmless = drawn("memory is in pieces", "stopped", 0)
    assert harmless.job.kept_for_metrics == "tensors"
    assert harmless.fault.metrics_on_cpu


@pytest.mark.complete
def test_every_look_has_a_source_and_can_be_shown_of_every_cause():
    assert set(evidence.LOOKS) == set(evidence._SHOWN)
    sources = [
        row["source"]
        for table in ("looks", "lines")
        for row in rows_of(table)
        if row.get("kind") != "harmless"
    ]
    assert all(source.startswith("https://") for source in sources)
    for cause, kind in VARIANTS:
        for look in evidence.LOOKS:
            assert str(evidence.show(drawn(cause, kind, 0), look)), look


@pytest.mark.parametrize(
    ("cuda", "driver", "gpu", "runs"),
    [
        ("12.8", 550, "H100 SXM5 80GB", True),
        ("13.0", 570, "H100 SXM5 80GB", False),  # of another major version
        ("12.6", 570, "B200 SXM", False),  # older than the GPU
        ("12.8", 570, "B200 SXM", True),
    ],
)
def test_a_driver_runs_every_cuda_of_its_major_version_that_knows_the_gpu(
    cuda, driver, gpu, runs
):
    assert runs_on(cuda, driver, gpu) == runs


class TestGuard:
    """17.4b: right answers of other styles."""

    def test_one_that_names_the_odd_ranks_passes(self):
        def agree(call, gather):
            calls = gather(call)
            if len(set(calls)) == 1:
                return True
            most = Counter(calls).most_common(1)[0][0]
            odd = {rank: other for rank, other in enumerate(calls) if other != most}
            raise RuntimeError(f"ranks {list(odd)} call {odd}, the rest {most}")

        assert "Every rank raises at once, after 10 steps" in guard.check(agree)

    def test_the_run_that_stood_still_ends_at_once(self):
        def agree(call, gather):
            if len(set(gather(call))) > 1:
                raise RuntimeError("calls differ")

        broken = drawn("a rank calls another collective", "stopped", 0)
        before = health.of(broken.launched)
        after = health.of(health.run(broken.job, broken.fault, guard=agree))
        assert all(rank.lost_peer for rank in before)
        assert [rank.error for rank in after] == ["RuntimeError: calls differ"] * 4
        assert "calls differ" in str(
            clinic.rerun(clinic.Case("17.4a", 0, broken), agree)
        )


def stack(rank):
    """Where a rank stands, without torch's own calls."""
    return [
        name
        for name in (line.split()[0] for line in rank.stack)
        if name not in (*COLLECTIVES, "_wait", "wrapper")
    ]


def real_runs():
    """The healthy run in `make test-all`, each broken one nightly."""
    yield pytest.param(None, None, marks=pytest.mark.complete)
    for cause, kind in VARIANTS:
        yield pytest.param(cause, kind, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("cause", "kind"), [*real_runs()])
def test_ranks_in_turn_leave_what_real_ranks_leave(cause, kind):
    one = drawn(cause, kind, 0) if cause else cases.BrokenRun((), Job(), Fault())
    hangs = kind == "stopped"
    # a busy machine's ranks may be late
    job = replace(one.job, time_limit_minutes=15 if hangs else 300)
    for mine, real in zip(
        *(health.of(run(job, one.fault)) for run in (ranks_in_turn.run, on_real_ranks)),
        strict=True,
    ):
        for name in (
            "images",
            "rows",
            "gpu_s",
            "cpu_s",
            "loader_s",
            "comm_s",
            "sent_bytes",
            "changed",
            "log",
        ):
            assert getattr(mine, name) == getattr(real, name), name
        for name in ("losses", "own_norms", "norms", "weights", "held_out_loss"):
            assert getattr(mine, name) == pytest.approx(
                getattr(real, name), rel=1e-3, abs=1e-4, nan_ok=True
            ), name
        assert mine.memory.most_reserved == real.memory.most_reserved
        assert mine.lost_peer == real.lost_peer
        assert mine.lost_peer or mine.error == real.error
        assert mine.calls == real.calls  # a real dump of torch's flight recorder
        assert stack(mine) == stack(real)


def test_the_healthy_run_is_healthy_and_like_that_of_one_rank():
    assert health.complaints(health.healthy(), Job(), Job(), Fault()) == []
    alone = health.losses(health.run(Job(), Fault(), 1))
    assert alone == pytest.approx(health.losses(health.healthy()), rel=1e-3)


class TestDeviceMemory:
    def test_neighbors_that_are_free_merge(self):
        memory = DeviceMemory(100 * MIB)
        # one segment of 20 MiB
        blocks = [memory.allocate(4 * MIB, str(i)) for i in range(5)]
        assert (memory.reserved, memory.used) == (20 * MIB, 20 * MIB)
        for block in (blocks[1], blocks[3], blocks[2]):
            memory.free(block)
        assert [block.size // MIB for block in memory.segments[0]] == [4, 12, 4]

    @pytest.mark.parametrize("expandable", [False, True])
    def test_blocks_never_overlap_and_never_exceed_the_capacity(self, expandable):
        draw = random.Random(17)
        memory = DeviceMemory(500 * MIB, expandable)
        held = []
        for _ in range(2000):
            if held and draw.random() < 0.5:
                memory.free(held.pop(draw.randrange(len(held))))
            else:
                try:
                    held.append(memory.allocate(draw.randrange(2 * MIB, 60 * MIB), "x"))
                except OutOfMemory:
                    assert memory.used + 60 * MIB > 500 * MIB or not expandable
            assert memory.used <= memory.reserved <= 500 * MIB
            for segment in memory.segments:
                ends = [block.start + block.size for block in segment]
                assert [block.start for block in segment] == [0, *ends[:-1]]
        assert sum(block.size for block in held) == memory.used
