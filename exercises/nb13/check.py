"""Checks of notebook 13, a model that does not fit. Those that need real ranks are in operators13 and plan13."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from exercises.nb13.operators import operators
from exercises.nb13.plan import plan
from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, as_number, call, function, number_close

Plan = Sequence[bool]


def bounds(answer: object) -> str:
    """Cuts whose largest rank is the smallest possible, for drawn layers and for awkward ones."""
    fn = function(answer, [1, 1], 2)
    draw = random.Random(1302)
    cases: list[tuple[list[int], int, str]] = [
        ([7, 7], 2, "two layers for two ranks"),
        ([90, 10, 10, 10, 10, 10], 2, "an embedding much larger than the blocks"),
        ([10, 10, 10, 10, 90], 3, "a large head"),
        ([5, 5, 5, 5], 4, "as many ranks as layers"),
        ([3, 9, 4], 1, "one rank"),
        ([6, 5, 5, 6, 8], 2, "layers where filling up to the mean goes wrong"),
        ([12] * 40, 4, "forty equal layers"),
    ]
    for _ in range(30):
        ranks = draw.randint(2, 4)
        cases.append(([draw.randint(1, 99) for _ in range(draw.randint(ranks, 9))], ranks, "drawn at random"))
    for sizes, ranks, why in cases:
        passed = list(sizes)
        _judge_cuts(call(fn, passed, ranks), sizes, ranks, f"{brief_repr(sizes)} on {ranks} ranks ({why})")
        if passed != sizes:
            raise NotYet("It has changed the list that it was given. Sort or pop from a copy.")
    return "The largest rank is as small as it can be, for two to four ranks, with a heavy embedding or head too."


def _listed(found: Any) -> list[Any] | None:
    """A list, a tuple, or an array or tensor of one dimension, as a list; None for anything else."""
    if isinstance(found, list | tuple):
        return list(found)
    listed = found.tolist() if hasattr(found, "tolist") else None
    return listed if isinstance(listed, list) else None


def _judge_cuts(found: Any, sizes: list[int], ranks: int, given: str) -> None:
    cuts = _listed(found)
    if cuts is None or not all(map(is_whole, cuts)):
        raise NotYet(
            f"For {given}: expected a list of whole numbers (int, as slices of layers need them), "
            f"got {brief_repr(found)}."
        )
    whole = [int(cut) for cut in cuts]
    if len(whole) != ranks + 1 or whole[0] != 0 or whole[-1] != len(sizes):
        raise NotYet(
            f"For {given}: expected {ranks + 1} numbers from 0 to {len(sizes)}, got {brief_repr(found)}. "
            "Rank r has layers found[r] to found[r + 1] - 1."
        )
    if any(later <= earlier for earlier, later in itertools.pairwise(whole)):
        raise NotYet(f"For {given}: {brief_repr(found)} leaves a rank without a layer, or turns back.")
    got = max(sum(sizes[a:b]) for a, b in itertools.pairwise(whole))
    least = _least_largest(sizes, ranks)
    if got > least:
        raise NotYet(
            f"For {given}: {brief_repr(found)} puts {got} on the fullest rank, and {least} is possible. "
            "Which of all cuts has the smallest maximum?"
        )


def _least_largest(sizes: list[int], ranks: int) -> int:
    """The smallest possible largest sum of `ranks` consecutive groups; each total is tried in turn."""
    sums = {sum(sizes[a:b]) for a, b in itertools.combinations(range(len(sizes) + 1), 2)}
    for most in sorted(total for total in sums if total >= max(sizes)):
        groups, held = 1, 0
        for size in sizes:
            groups, held = (groups, held + size) if held + size <= most else (groups + 1, size)
        if groups <= ranks:  # a group of several layers can be cut once more, which makes none larger
            return most
    return sum(sizes)


def peak_bytes(recompute: Plan, saved: Sequence[int], kept: Sequence[int]) -> int:
    """The most bytes held for backward: what the blocks below keep, and all of the block that runs backward."""
    stored = [k if again else s for again, s, k in zip(recompute, saved, kept, strict=True)]
    return max(sum(stored[:i]) + saved[i] for i in range(len(saved)))


def recomputation(answer: object) -> str:
    """The least recomputation whose peak fits, for drawn blocks, equal blocks, and limits that nothing fits."""
    fn = function(answer, [4, 4], [1, 1], [1.0, 1.0], 8)
    for saved, kept, forward_s, limit, why in _memories():
        sizes = f"saved {brief_repr(saved)}, kept {brief_repr(kept)}, forward {brief_repr(forward_s)}"
        given = f"{sizes} and limit {limit} ({why})"
        passed = list(saved), list(kept), list(forward_s)
        found = call(fn, *passed, limit)
        if passed != (saved, kept, forward_s):
            raise NotYet("It has changed a list that it was given, which others still need. Work on a copy.")
        _judge_plan(found, saved, kept, forward_s, limit, given)
    return "Always the least extra time that fits, and None where nothing does."


def _memories() -> Iterator[tuple[list[int], list[int], list[float], int, str]]:
    draw = random.Random(1306)
    yield [16] * 4, [1] * 4, [1.0] * 4, 64, "everything fits: recompute nothing"
    yield [16] * 4, [1] * 4, [1.0] * 4, 19, "all but the last block have to be recomputed"
    yield [16] * 4, [1] * 4, [1.0] * 4, 50, "which of equal blocks is recomputed matters"
    yield [16] * 4, [1] * 4, [1.0] * 4, 15, "one block alone is too large"
    yield [10, 40, 10, 40], [1, 1, 1, 1], [1.0, 1.5, 1.0, 1.5], 80, "two large blocks"
    yield [7], [2], [1.0], 7, "a single block"
    for _ in range(25):
        n = draw.randint(2, 7)
        saved = [draw.randint(5, 40) for _ in range(n)]
        kept = [draw.randint(1, 4) for _ in range(n)]
        seconds = [round(draw.uniform(0.5, 3), 2) for _ in range(n)]
        low, high = (peak_bytes([again] * n, saved, kept) for again in (True, False))
        yield saved, kept, seconds, draw.randint(low, high), "drawn at random"


def _judge_plan(found: Any, saved: list[int], kept: list[int], forward_s: list[float], limit: int, given: str) -> None:
    def extra_s(chosen: Plan) -> float:
        return sum(itertools.compress(forward_s, chosen))

    every = itertools.product((False, True), repeat=len(saved))
    fitting = [one for one in every if peak_bytes(one, saved, kept) <= limit]
    if not fitting:
        if found is not None:
            raise NotYet(f"For {given}: nothing fits, so None is expected; got {brief_repr(found)}.")
        return
    if found is None:
        raise NotYet(
            f"For {given}: got None, but {brief_repr(fitting[-1])} fits. Is your sum for the peak too careful?"
        )
    listed = _listed(found)
    if (
        listed is None
        or len(listed) != len(saved)
        or any(getattr(one, "ndim", 0) or one not in (0, 1) for one in listed)
    ):
        raise NotYet(f"For {given}: expected {len(saved)} times True or False, got {brief_repr(found)}.")
    chosen = tuple(map(bool, listed))
    if (peak := peak_bytes(chosen, saved, kept)) > limit:
        raise NotYet(f"For {given}: {brief_repr(chosen)} holds {peak} at its peak. {_over(chosen, saved, kept, limit)}")
    best = min(fitting, key=extra_s)
    if extra_s(chosen) > extra_s(best) * (1 + 1e-9) + 1e-12:
        raise NotYet(
            f"For {given}: {brief_repr(chosen)} fits and costs {extra_s(chosen):.4g} s more; "
            f"{brief_repr(best)} fits too and "
            f"costs {extra_s(best):.4g} s. Is your sum for the peak too careful?"
        )


def _over(chosen: Plan, saved: list[int], kept: list[int], limit: int) -> str:
    forward = sum(k if again else s for again, s, k in zip(chosen, saved, kept, strict=True))
    if forward <= limit:
        return (
            f"After the forward pass it is {forward}; but a block that is recomputed holds its whole `saved` while it "
            "runs backward."
        )
    return f"Already the forward pass leaves {forward}."


def traffic(answer: object) -> str:
    """Bytes of both ways and their crossover at drawn sizes; each wrong factor is told apart."""
    fn = function(answer, 12 * 64**2, 1, 64, 128, 3, 8)
    draw = random.Random(1307)
    # the first sizes keep the usual wrong factors apart
    cases = [(12 * 64**2, 1, 64, 128, 3, 8), (12 * 12_288**2 * 96, 96, 12_288, 2048, 8, 2), (1000, 3, 10, 7, 5, 4)]
    for _ in range(12):
        blocks, hidden = draw.randint(1, 100), draw.randint(8, 12_288)
        params = blocks * draw.randint(8, 16) * hidden**2
        cases.append((params, blocks, hidden, draw.randint(1, 10**6), draw.randint(2, 64), draw.choice((2, 4))))
    for case in cases:
        _judge_traffic(call(fn, *case), case)
    return "Right from two ranks to 64, in 16 and in 32 bit, and the crossover depends on neither."


def _judge_traffic(found: Any, case: tuple[int, ...]) -> None:
    params, blocks, hidden, tokens, ranks, element = case
    given = (
        f"{params:,} parameters in {blocks} blocks of {hidden}, {tokens:,} tokens, {ranks} ranks, {element} bytes each"
    )
    listed = _listed(found)
    if listed is None or len(listed) != 3:
        raise NotYet(
            f"For {given}: expected (FSDP's bytes, tensor parallelism's bytes, tokens), got {brief_repr(found)}."
        )
    others = (ranks - 1) / ranks
    fsdp, tensor = 3 * others * params * element, 8 * others * blocks * tokens * hidden * element
    for name, value, right, factors in (
        ("FSDP", listed[0], fsdp, {2 / 3: _REGATHER, 1 / 3: _REGATHER, 4 / 3: _SCATTER, 1 / element: _ELEMENT}),
        (
            "tensor parallelism",
            listed[1],
            tensor,
            {0.5: _TWICE, 0.25: _TWICE, 1 / blocks: _BLOCKS, 1 / element: _ELEMENT},
        ),
    ):
        number = as_number(value, "bytes", f"{given}, {name}")
        hint = _factor(number, right, factors | {1 / others: _OTHERS})
        number_close(number, right, rel=1e-9, unit="bytes", given=f"{given}, {name}", hint=hint)
    crossover = 3 * params / (8 * blocks * hidden)
    number = as_number(listed[2], "tokens", given)
    hint = "Set both equal and solve for the tokens: the bytes of an element and the share of the others cancel."
    number_close(number, crossover, rel=1e-9, unit="tokens", given=f"{given}, crossover", hint=hint)


_REGATHER = "FSDP gathers the parameters for forward, again for backward, and reduces and scatters the gradients."
_SCATTER = "A reduce-scatter sends half of what an all-reduce sends: each rank needs its own part of the sum only."
_ELEMENT = "How many bytes has a number?"
_TWICE = "Four all-reduces a block and step, and a ring all-reduce sends nearly twice the tensor."
_BLOCKS = "Each block has its own four."
_OTHERS = "Of a ring's bytes a rank sends the share that others have: (ranks - 1) / ranks, once or twice."


def _factor(value: float, right: float, factors: dict[float, str]) -> str:
    for factor, words in factors.items():
        if right and factor != 1 and math.isclose(value, factor * right, rel_tol=1e-6):
            return words
    return "FSDP: 3 (n - 1) / n of all parameters. Tensor parallelism: 4 all-reduces a block, each 2 (n - 1) / n of it."


CHECKS = {
    "13.2": bounds,
    "13.4": operators,
    "13.5": plan,
    "13.6": recomputation,
    "13.7": traffic,
}
