"""The small GPT of notebook 19: what its switches leave as it is, and
what they change.
"""

import math

import numpy as np
import pytest
import torch

from exercises.nb19 import bpe, gpt, ladder, packing, training
from labkit.measure.bench import Ratio
from labkit.measure.machine import threads
from tests.helpers import check

SMALL = {
    "rows": 65,
    "layers": 2,
    "heads": 2,
    "width": 32,
    "context": 16,
    "device": "cpu",
}


@pytest.fixture(autouse=True)
def one_thread():
    with threads(1):  # more would wait for a busy core
        yield


def model_of(**switches):
    on = gpt.Switches(**SMALL | switches)
    torch.manual_seed(0)
    return on, gpt.new_model(on)


def rows_of(on, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(65, (6, on.context + 1), generator=draw)


def test_the_switches_are_what_nanogpt_says_for_a_computer_without_a_gpu(monkeypatch):
    monkeypatch.setenv("LABKIT_PROFILE", "full")
    monkeypatch.setattr(gpt, "pick", lambda ci, cpu, gpu: cpu)
    on = gpt.Switches()
    # its README's command and config/train_shakespeare_char.py, commit 3adf61e1
    assert (on.batch, on.context, on.layers, on.heads, on.width) == (12, 64, 4, 4, 128)
    assert (on.rows, on.dropout, on.decay, on.warmup) == (65, 0.0, 2000, 100)
    assert (on.rate, on.beta2, on.weight_decay) == (1e-3, 0.99, 0.1)
    # "number of parameters: 0.80M", which leaves the positions out
    model = gpt.new_model(on)
    parameters = sum(p.numel() for p in model.parameters())
    assert round((parameters - model.positions.weight.numel()) / 1e6, 2) == 0.80


def test_with_a_mask_no_token_sees_another_document():
    on, model = model_of(separator=3)
    rows = rows_of(on)
    rows[:, 6] = 3
    other = rows.clone()
    other[:, :6] = (rows[:, :6] + 1) % 65
    other[:, :6][other[:, :6] == 3] = 4
    with torch.no_grad():
        first = model(rows[:, :-1])  # (B, T, rows)
        second = model(other[:, :-1])
    assert torch.allclose(first[:, 7:], second[:, 7:], atol=1e-6)
    assert not torch.allclose(first[:, 6], second[:, 6], atol=1e-3)
    _, open_model = model_of()
    with torch.no_grad():
        assert not torch.allclose(
            open_model(rows[:, :-1])[:, 7:], open_model(other[:, :-1])[:, 7:], atol=1e-3
        )


def test_what_follows_a_document_is_not_predicted():
    rows = torch.tensor([[5, 3, 7, 8, 3, 9]])
    assert gpt.targets(rows, 3).tolist() == [[3, gpt.PADDING, 8, 3, gpt.PADDING]]
    assert gpt.targets(rows).tolist() == [[3, 7, 8, 3, 9]]


def test_mup_changes_nothing_at_the_width_of_its_rate_and_shrinks_what_is_wider():
    (on, plain), (at, same), (narrow, wide) = (model_of(mup=mup) for mup in (0, 32, 8))
    rows = rows_of(on)
    with torch.no_grad():
        assert torch.equal(plain(rows[:, :-1]), same(rows[:, :-1]))
        assert wide(rows[:, :-1]).std() < plain(rows[:, :-1]).std() / 3
    for ours, theirs in zip(gpt.hidden(plain), gpt.hidden(wide), strict=True):
        assert theirs.std().item() == pytest.approx(ours.std().item() / 2, rel=1e-3)
    rates = [[group["lr"] for group in gpt.new_optimizers(each, one)[0].param_groups]
             for each, one in ((on, plain), (at, same), (narrow, wide))]  # fmt: skip
    # embeddings, norms, the blocks' matrices
    assert rates == [[1e-3] * 3, [1e-3] * 3, [1e-3, 1e-3, 0.25e-3]]


def test_padding_changes_no_loss():
    on, model = model_of()
    short = rows_of(on)[:, :9]
    padded = torch.nn.functional.pad(short, (0, 5), value=-100)
    with torch.no_grad():
        assert gpt.loss_of(model, padded).item() == pytest.approx(
            gpt.loss_of(model, short).item(), abs=1e-6
        )


def test_a_loss_in_parts_is_the_loss_and_has_its_gradients():
    on, model = model_of()
    rows = rows_of(on)
    rows[:, 7] = 3
    rows[:, -4:] = gpt.PADDING
    gradients = []
    losses = []
    for loss_of in (gpt.loss_of, gpt.chunked_loss):
        model.zero_grad()
        loss = loss_of(model, rows, 3)
        loss.backward()
        losses.append(loss.item())
        gradients.append([weight.grad.clone() for weight in model.parameters()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    for whole, parts in zip(*gradients, strict=True):
        assert torch.allclose(whole, parts, atol=1e-6)


TEXT = torch.randint(65, (3000,), generator=torch.Generator().manual_seed(1))
TRAINER = training.Trainer(TEXT[:2000], TEXT[2000:])
TINY = SMALL | {"layers": 1, "batch": 4, "compiled": "", "bf16": False, "threads": 1}


def test_trainings_of_one_seed_are_the_same_and_say_how_much_they_read():
    losses = []
    for _ in range(2):
        trained = TRAINER.begun(seed=3, **TINY)
        losses.append([trained.step() for _ in range(3)])
        assert trained.tokens == 3 * 4 * 16
    assert losses[0] == losses[1]
    assert TRAINER.begun(seed=4, **TINY).step() != losses[0][0]
    silent = TRAINER.begun(**TINY, read_every=2)
    assert [silent.step() is None for _ in range(4)] == [False, True, False, True]
    assert TRAINER.begun(seed=3, **TINY, parts=4).step() == pytest.approx(losses[0][0])


def test_a_training_ends_at_its_loss_or_when_it_is_given_up(monkeypatch):
    monkeypatch.setattr(training, "pick", lambda ci, cpu, gpu: ci)
    tokens, loss = TRAINER.until(9.0, **TINY)
    assert tokens == 512  # the first look
    assert 4 < loss < 5  # ln 65 is 4.17
    assert TRAINER.until(0.1, **TINY)[0] == 1536


def test_a_sweep_that_is_stopped_keeps_what_was_trained(monkeypatch, capsys):
    losses = iter([3.0, 2.5, math.nan, 2.9, KeyboardInterrupt])

    def loss_after(*_, **__):
        loss = next(losses)
        if loss is KeyboardInterrupt:
            raise KeyboardInterrupt
        return loss

    monkeypatch.setattr(training.Trainer, "loss_after", loss_after)
    sweep = TRAINER.sweep([1e-3, 2e-3, 4e-3], width=16)
    assert sweep.results == {1e-3: (3.0, 2.9), 2e-3: (2.5,), 4e-3: (math.inf,)}
    assert sweep.best == 2e-3
    assert "training 4 of 6" in capsys.readouterr().out
    losses = iter([KeyboardInterrupt])
    with pytest.raises(KeyboardInterrupt):
        TRAINER.sweep([1e-3], width=16)


def test_only_the_trainings_that_were_timed_are_paired_with_their_seconds():
    repeated = training.Repeated(TRAINER, 2.5, {})
    repeated.reached = [(900, 2.4), (100, 2.4), (200, 2.6)]
    assert repeated.by_seed([1.0, 2.0]) == [(1.0, 100), (2.0, 200)]
    assert not repeated.arrived


def test_a_rung_is_taken_apart_by_the_readers_function():
    pairs = [(8.0, 400)], [(2.0, 200)]
    top = ladder.Ladder({}, pairs={"Muon": pairs})
    table = top.apart(lambda below, rung: (below[0][0] / rung[0][0], 2))
    assert table.rows == (("Muon", "4.00x", "2.00x"),)


def test_memory_of_the_rows_is_calculated_for_the_larger_moment():
    steps = {
        name: TRAINER.begun(**TINY | {"rows": rows, "parts": parts, "fused": False})
        for name, rows, parts in (("65", 65, 1), ("many", 4096, 1), ("parts", 4096, 16))
    }
    memory = training.memory_of(steps)
    logits = 3 * 4 * 16 * 4096
    optimizer = 5 * 4096 * 32
    assert memory.calculated["many"] == 4 * logits
    assert memory.calculated["parts"] == 4 * optimizer
    assert memory.ratio("many") > memory.ratio("parts") > 1
    for name, peak in memory.peaks.items():
        assert peak > memory.calculated[name]


def test_packed_rows_have_all_tokens_and_less_padding():
    text = torch.randint(1, 65, (600,), generator=torch.Generator().manual_seed(2))
    text[torch.tensor([10, 40, 44, 90, 200, 201, 300])] = 0
    documents = packing.lines_of(text, 0, 7)
    assert [len(line) for line in documents][:2] == [11, 16]  # cut to the context
    assert all(line[-1] == 0 for line in documents)
    tokens = torch.cat(documents)
    for batches in (packing.padded(documents), packing.packed(documents)):
        kept = torch.cat([rows[rows != gpt.PADDING] for rows in batches])
        assert torch.equal(kept.cpu(), tokens)
    sizes = [
        sum(rows.numel() for rows in batches)
        for batches in (packing.packed(documents), packing.padded(documents))
    ]
    assert sizes[0] < sizes[1]


def test_a_rate_rises_and_falls_as_in_nanogpt():
    on, model = model_of(warmup=4, decay=10)
    optimizers = gpt.new_optimizers(on, model)
    (schedule,) = gpt.schedules(on, optimizers)
    seen = []
    for _ in range(12):
        seen.append(optimizers[0].param_groups[0]["lr"])
        optimizers[0].step()
        schedule.step()
    assert seen == pytest.approx([nanogpt_rate(step, 4, 10) for step in range(12)])


def nanogpt_rate(step, warmup, decay, most=1e-3, least=1e-4):
    """get_lr of nanoGPT's train.py, commit 3adf61e1."""
    if step < warmup:
        return most * (step + 1) / (warmup + 1)
    if step > decay:
        return least
    done = (step - warmup) / (decay - warmup)
    return least + 0.5 * (1 + math.cos(math.pi * done)) * (most - least)


def on_either_side(gradient):
    """A tall matrix has its small square on the right."""
    x = gradient / (gradient.norm() + 1e-7)
    tall = gradient.shape[0] > gradient.shape[1]
    for _ in range(5):
        square = x.mT @ x if tall else x @ x.mT
        factor = -4.7750 * square + 2.0315 * square @ square
        x = 3.4445 * x + (x @ factor if tall else factor @ x)
    return x


def in_bfloat16(gradient):
    """As torch.optim.Muon: rounded first, and of a tall matrix the transpose."""
    x = gradient.bfloat16()
    x = x.T if gradient.shape[0] > gradient.shape[1] else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        square = x @ x.T
        update = torch.addmm(square, square, square, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, update, x, beta=3.4445)
    return x.T if gradient.shape[0] > gradient.shape[1] else x


def rounded_last(gradient):
    scaled = gradient / (gradient.norm() + 1e-7)
    return in_bfloat16(scaled).float()


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (
            "19.3",
            lambda loss, tokens, n_bytes: np.float32(
                loss * math.log2(math.e) / (n_bytes / tokens)
            ),
        ),
        ("19.4b", on_either_side),
        ("19.4b", in_bfloat16),
        ("19.4b", rounded_last),
    ],
)
def test_other_ways_that_are_right_pass(number, answer):
    outcome = check(number, answer)
    assert outcome.state == "passed", outcome


@pytest.mark.parametrize("text", ["aaabcaabaaaaab", "abababab", "aaaa", "ab"])
def test_byte_pairs_are_merged_from_the_left_and_give_the_text_back(text):
    characters = "abc"
    numbers = torch.tensor([characters.index(letter) for letter in text])
    tokens, pairs = bpe.learned(numbers, 3, min(2, len(text) - 1))
    names = bpe.names(characters, pairs)
    assert "".join(names[token] for token in tokens) == text
    assert torch.equal(bpe.encoded(numbers, 3, pairs), tokens)
    # str.replace goes from the left, too
    merged = bpe.merged(numbers, (0, 0), 3)
    assert "".join("abcA"[i] for i in merged) == text.replace("aa", "A")


def test_tables_of_pairs_are_compared_in_bits_a_byte():
    text = torch.tensor([0, 1, 2, 1] * 300)
    models = bpe.TableModels(text[:1000], text[1000:], "abc", 1)
    assert models.names[3] in ("ab", "bc", "cb", "ba")
    rows = models.compared(lambda loss, tokens, n_bytes: loss * tokens / n_bytes).rows
    assert [row[0].split(",")[0] for row in rows] == [
        "pairs of characters",
        "pairs of BPE's tokens",
        "lzma",
    ]
    assert bpe.table_loss(text, text, 3) == pytest.approx(0.5 * math.log(2), abs=0.02)


class Clock:
    """Minutes, of which a race takes five."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds

    def race(self, *ratios):
        outcomes = iter(ratios)

        def race(below, on, name, with_it):
            self.seconds += 300
            outcome = next(outcomes)
            if outcome is KeyboardInterrupt:
                raise KeyboardInterrupt
            low, busy = outcome
            return Ratio(name, below, low + 0.1, low, low + 0.2, busy)

        return race


TECHNIQUES = {name: {name: True} for name in ("a", "b", "c", "d")}


def climbed(*ratios, minutes=60, arrived=lambda name: True):
    clock, said = Clock(), []
    top = ladder.climb(
        ladder.Ladder({"foot": {}}),
        TECHNIQUES,
        clock.race(*ratios),
        minutes=minutes,
        arrived=arrived,
        say=said.append,
        clock=clock,
    )
    return top, said


def test_a_rung_stays_only_if_the_race_shows_it():
    busy = "this machine was busy"
    top, _ = climbed(
        (1.2, ""), (1.5, busy), (1.5, busy), (0.9, ""), (1.5, busy), (2, "")
    )
    assert list(top.rungs) == ["foot", "a", "d"]  # b was twice not judged, d once
    assert top.top == ("d", {"a": True, "d": True})
    assert list(top.tried) == ["a", "b", "c", "d"]
    late, _ = climbed(*[(2.0, "")] * 4, arrived=lambda name: name != "b")
    assert list(late.rungs) == ["foot", "a", "c", "d"]


def test_a_ladder_ends_in_time_and_when_it_is_stopped():
    top, said = climbed(*[(2.0, "")] * 4, minutes=12)
    assert list(top.tried) == ["a", "b"]
    assert top.untried == ["c", "d"]
    assert "No time is left for c, d" in said[-1]
    top, said = climbed((2.0, ""), KeyboardInterrupt)
    assert list(top.rungs) == ["foot", "a"]
    assert top.untried == ["b", "c", "d"]


def test_shares_add_up():
    top, _ = climbed(*[(1.9, "")] * 4)
    rows = ladder.shares(top).rows
    assert [row[2] for row in rows] == ["25%"] * 4 + [""]
    assert rows[-1][1] == "16.00x"
    nothing, _ = climbed(*[(0.8, "")] * 4)
    assert len(ladder.shares(nothing).rows) == 1
