"""The small engine of notebook 19: it writes what the model writes alone, loses no block
of its cache, and a clock decides who waited how long.
"""

import itertools
import math

import pytest
import torch

from exercises.nb19 import (
    cache_steps,
    engine,
    figures,
    grpo,
    load_test,
    serving,
    speculation,
    writer,
)
from labkit.lesson import exercise_files
from labkit.measure.machine import threads
from labkit.train.models import SmallGPT
from tests.helpers import check

pytestmark = pytest.mark.slow  # some thousand calls of a small model

ROWS = 20
TEXT = torch.randint(ROWS, (4000,), generator=torch.Generator().manual_seed(0))


def solved():
    """The functions of the solutions, by name."""
    names = {"math": math, "itertools": itertools}
    for number in ("19.6a", "19.6b"):
        exec(exercise_files.solutions("19")[number], names)
    return names


ADMIT = solved()["admit"]
SLOTS = solved()["slots"]
ACCEPT = solved()["accept"]


@pytest.fixture(autouse=True)
def one_thread():
    with threads(1):  # more would wait for a busy core
        yield


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    model = SmallGPT(ROWS, layers=2, heads=2, width=16, context=128)
    for weight in model.parameters():  # so that what it writes depends on what it read
        weight.data *= 4
    return model.eval()


@torch.no_grad()
def alone(model, request):
    rows = torch.tensor([request.prompt])
    for _ in range(request.n_new):
        rows = torch.cat([rows, model(rows)[:, -1:].argmax(-1)], 1)
    return rows[0, len(request.prompt) :].tolist()


class Clock:
    """A second for each look at it."""

    def __init__(self):
        self.s = 0.0

    def __call__(self):
        self.s += 1.0
        return self.s


def served(model, static, n_blocks=20, places=4, rate=0.0, n=9):
    requests = serving.requests_of(TEXT, n, rate=rate, most=40)
    machine = engine.Engine(
        model,
        SLOTS,
        ADMIT,
        places=places,
        n_blocks=n_blocks,
        static=static,
        now=Clock(),
    )
    machine.serve(requests)
    assert sorted(machine.cache.free) == list(range(n_blocks))
    return requests


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("n_blocks", [5, 20])
def test_an_engine_writes_what_the_model_writes_alone(model, static, n_blocks):
    for request in served(model, static, n_blocks):
        assert request.written == alone(model, request)
        assert request.written_s == sorted(request.written_s)
        assert request.table == []


def test_continuous_batching_takes_fewer_steps_and_its_readers_wait_less(model):
    ends = {}
    for static in (True, False):
        requests = served(model, static, n_blocks=60)
        latency = serving.latency_of(requests)
        ends[static] = max(request.written_s[-1] for request in requests)
        n_tokens = sum(request.n_new for request in requests)
        assert latency.tokens_per_s == pytest.approx(n_tokens / ends[static])
    assert ends[False] < ends[True]
    stays = serving.schedules(requests, ADMIT, places=4, n_blocks=60)
    # its prompts are read in the step in which they join, so one step is one second
    for static, way in ((True, "static"), (False, "continuous")):
        steps = max(stay.end for stay in stays[way])
        assert ends[static] == pytest.approx(steps, abs=0)


def test_a_reader_who_comes_alone_waits_for_nobody(model):
    for request in served(model, False, rate=0.001):
        assert request.written_s[0] - request.arrival_s <= 40
        assert {b - a for a, b in itertools.pairwise(request.written_s)} <= {1.0}


def test_no_place_of_a_schedule_has_two_at_once():
    requests = serving.requests_of(TEXT, 40)
    for stays in serving.schedules(requests, ADMIT).values():
        assert sorted(stay.request for stay in stays) == list(range(40))
        for place in range(8):
            mine = sorted(stay[2:] for stay in stays if stay.place == place)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))


def test_what_can_never_be_admitted_ends_in_an_error(model):
    with pytest.raises(RuntimeError, match="No request was admitted"):
        served(model, False, n_blocks=1)
    with pytest.raises(ValueError, match="at most 128 tokens"):
        engine.Engine(model, SLOTS, ADMIT).serve([engine.Request([1] * 100, 60)])


@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_draft_changes_the_calls_and_not_the_text(model, k):
    prompts = TEXT[:96].view(3, 32).tolist()
    tools = {"accept": ACCEPT}
    without = speculation.speculate(model, prompts, 40, 0, **tools)
    assert without.tokens_a_call == 1
    right = {tuple(p): p + t for p, t in zip(prompts, without.tokens, strict=True)}

    def oracle(tokens, k):
        """Every third token is wrong."""
        whole = right[tuple(tokens[:32])] + [0] * 20
        place = range(len(tokens), len(tokens) + k)
        return [(whole[i] + (i % 3 == 0)) % ROWS for i in place]

    for draft in (speculation.table_draft(TEXT, 2), oracle):
        written = speculation.speculate(model, prompts, 40, k, draft, **tools)
        assert written.tokens == without.tokens
        assert written.n_calls <= without.n_calls
    assert written.tokens_a_call > 1.3


def test_the_expected_tokens_of_a_call_are_those_of_all_outcomes():
    for a, k in ((0.0, 4), (0.3, 1), (0.8, 5), (1.0, 3)):
        outcomes = [(i + 1) * a**i * (1 - a) for i in range(k)] + [(k + 1) * a**k]
        assert speculation.expected_tokens(a, k) == pytest.approx(sum(outcomes))


def test_a_table_proposes_what_most_often_follows():
    draft = speculation.table_draft(torch.tensor([1, 2, 3, 1, 2, 3, 1, 2, 4]), 2)
    assert draft([9, 1, 2], 3) == [3, 1, 2]
    assert draft([7, 7], 2) == [0, 0]


def test_rollouts_are_the_same_with_the_cache_and_without_it(model):
    prompts = TEXT[:40].view(4, 10)
    rows = []
    for cached in (True, False):
        torch.manual_seed(3)
        rows.append(grpo.rollouts(model, prompts, 30, cached=cached))
    assert torch.equal(*rows)
    assert grpo.log_chances(model, rows[0], 30).shape == (4, 30)


@pytest.mark.complete  # 600 calls
def test_a_rewarded_token_is_written_more_often(model):
    def reward(answers):
        return (answers == 3).float().mean(2)

    def loss_of(log_chances, rewards):
        advantages = rewards - rewards.mean(1, keepdim=True)
        return -(advantages[:, :, None] * log_chances).mean() * 100

    before = [weight.clone() for weight in model.parameters()]
    torch.manual_seed(0)
    steps = grpo.train(model, TEXT[:16].view(2, 8), reward, loss_of, 12, cached=True)
    assert steps[-1].reward > steps[0].reward
    assert 0 < grpo.written_share(steps) < 1
    assert all(map(torch.equal, before, model.parameters()))


def test_bytes_of_cache_are_those_of_the_published_sizes():
    kib = {row[0]: row[2] for row in writer.cache_bytes().rows}
    # layers * numbers * 2 bytes: 8 of 64 heads, and 512 + 64 numbers of latent attention
    assert kib["Llama-2-70B"] == f"{80 * 2 * 8 * 128 * 2 / 1024:.0f}"
    assert kib["DeepSeek-V3"] == f"{61 * (512 + 64) * 2 / 1024:.0f}"


def test_figures_say_what_they_show(model):
    def write(k, draft=None):
        tools = {"accept": ACCEPT}
        return speculation.speculate(model, [[1, 2, 3]], 10, k, draft, **tools)

    drafts = {"last 2": speculation.table_draft(TEXT, 2)}
    assert "the same text" in figures.tokens_a_call(write, drafts).sentence
    load = load_test.LoadTest(model, SLOTS, ADMIT, TEXT, 12)
    latencies = load._under_load(1.0)
    assert [row[1] for row in latencies.table().rows[:2]] == ["static", "continuous"]
    assert "continuous" in figures.waiting(latencies).sentence
    stays = serving.schedules(serving.requests_of(TEXT, 12), ADMIT)
    ends = {way: max(stay.end for stay in each) for way, each in stays.items()}
    assert f"static {ends['static']}" in figures.batches(stays).sentence
    assert serving.steps_saved(stays) == ends["static"] / ends["continuous"]


@pytest.mark.parametrize("slots", [SLOTS, lambda *args: with_slices(*args)])
def test_a_film_shows_each_token_once_and_every_block_that_is_taken(slots):
    frames = list(cache_steps.steps(slots))
    assert [step.number for step in frames] == list(range(0, 27, 2))
    for step in frames:
        places = [slot for each in step.slots.values() for slot in each]
        assert len(set(places)) == len(places)
        for name, table in step.tables.items():
            assert len(table) == math.ceil(len(step.slots[name]) / 16)
        sentence = figures.cache_blocks(step).sentence
        assert f"of {step.n_tokens} tokens; {step.n_blocks} of 10" in sentence
    with_b = frames[4]
    with_d = frames[5]
    assert len(with_b.slots["B"]) == 48
    assert not with_d.slots["B"]
    taken_from_b = set(with_b.tables["B"]) & set(with_d.tables["D"])
    assert len(taken_from_b) == (3 if slots is SLOTS else 0)
    assert frames[-1].n_blocks == cache_steps.N_BLOCKS
    assert with_d.newest == {"A": 2, "B": 0, "C": 2, "D": 36}


def in_a_loop(sizes, free, places):
    joined = 0
    for tokens in sizes:
        free -= -(-tokens // 16)
        if free < 0 or joined == places:
            break
        joined += 1
    return joined


def with_slices(table, free, n_tokens):
    needed = (n_tokens + 15) // 16
    more = max(0, needed - len(table))
    table.extend(free[:more])
    del free[:more]
    free.extend(table[needed:])
    del table[needed:]
    return torch.tensor([table[i >> 4] << 4 | i & 15 for i in range(n_tokens)])


def one_by_one(draft, target):
    n = 0
    while n < len(draft) and draft[n] == target[n]:
        n += 1
    return [*draft[:n], target[n]], n


@pytest.mark.parametrize(
    ("number", "answer"),
    [("19.6a", (in_a_loop, with_slices)), ("19.6b", one_by_one)],
)
def test_other_ways_that_are_right_pass(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome


def test_of_two_functions_the_first_that_is_open_or_wrong_is_named():
    def open_one(table, free, n_tokens): ...

    outcome = check("19.6a", (ADMIT, open_one))
    assert outcome.state == "todo"
    assert outcome.message.startswith("admit is right. open_one has no body yet")
    outcome = check("19.6a", (ADMIT, lambda table, free, n_tokens: []))
    assert outcome.message.startswith("slots: For a new sequence of 40 tokens")
