"""Checks of notebook 13, a model that does not fit. Those that need real ranks are in tensor_parallel."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

from exercises.answers import about, as_list, mistake, parts, whole_numbers
from exercises.nb13.tensor_parallel import operators, plan
from exercises.stages import best_edges, sums
from labkit.core.display import brief_repr
from labkit.lesson.checks import NotYet, as_number, call, function, number_close, over_cases

Plan = Sequence[bool]


def bounds(answer: object) -> str:
    """Cuts whose largest rank is the smallest possible, for drawn layers and for awkward ones."""
    fn = function(answer)
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
        with about(f"{brief_repr(sizes)} on {ranks} ranks ({why})"):
            _judge_cuts(call(fn, passed, ranks), sizes, ranks)
        if passed != sizes:
            raise NotYet("It has changed the list that it was given. Sort or pop from a copy.")
    return "The largest rank is as small as it can be, for one to four ranks, with a heavy embedding or head too."


def _judge_cuts(found: Any, sizes: list[int], ranks: int) -> None:
    cuts = whole_numbers(found, "a list of whole numbers (int, as slices of layers need them)")
    if len(cuts) != ranks + 1 or cuts[0] != 0 or cuts[-1] != len(sizes):
        raise NotYet(
            f"expected {ranks + 1} numbers from 0 to {len(sizes)}, got {brief_repr(found)}. Rank r has layers found[r] "
            "to found[r + 1] - 1."
        )
    if any(later <= earlier for earlier, later in itertools.pairwise(cuts)):
        raise NotYet(f"{brief_repr(found)} leaves a rank without a layer, or isn't in ascending order.")
    got, least = (max(sums(sizes, edges)) for edges in (cuts, best_edges(sizes, ranks)))
    if got > least:
        raise NotYet(
            f"{brief_repr(found)} puts {got} on the fullest rank, and {least} is possible. Which of all cuts has the "
            "smallest maximum?"
        )


def stored_bytes(recompute: Plan, saved: Sequence[int], kept: Sequence[int]) -> list[int]:
    """What each block holds after its forward."""
    return [k if again else s for again, s, k in zip(recompute, saved, kept, strict=True)]


def peak_bytes(recompute: Plan, saved: Sequence[int], kept: Sequence[int]) -> int:
    """The most bytes held for backward: what the blocks below keep, and all of the block that runs backward."""
    stored = stored_bytes(recompute, saved, kept)
    return max(sum(stored[:i]) + saved[i] for i in range(len(saved)))


def recomputation(answer: object) -> str:
    """The least recomputation whose peak fits, for drawn blocks, equal blocks, and limits that nothing fits."""
    fn = function(answer)
    for saved, kept, forward_s, limit, why in _memories():
        sizes = f"saved {brief_repr(saved)}, kept {brief_repr(kept)}, forward {brief_repr(forward_s)}"
        passed = list(saved), list(kept), list(forward_s)
        found = call(fn, *passed, limit)
        if passed != (saved, kept, forward_s):
            raise NotYet("It has changed a list that it was given, which others still need. Work on a copy.")
        with about(f"{sizes} and limit {limit} ({why})"):
            _judge_plan(found, saved, kept, forward_s, limit)
    return "Always the least extra time that fits, and None where nothing does."


def _memories() -> Iterator[tuple[list[int], list[int], list[float], int, str]]:
    draw = random.Random(1306)
    yield [16] * 4, [1] * 4, [1.0] * 4, 64, "everything fits: recompute nothing"
    yield [16] * 4, [1] * 4, [1.0] * 4, 19, "all but the last block must be recomputed"
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


def _judge_plan(found: Any, saved: list[int], kept: list[int], forward_s: list[float], limit: int) -> None:
    def extra_s(chosen: Plan) -> float:
        return sum(itertools.compress(forward_s, chosen))

    every = itertools.product((False, True), repeat=len(saved))
    fitting = [one for one in every if peak_bytes(one, saved, kept) <= limit]
    if not fitting:
        if found is not None:
            raise NotYet(f"nothing fits, so None is expected; got {brief_repr(found)}.")
        return
    if found is None:
        raise NotYet(f"got None, but {brief_repr(fitting[-1])} fits. Is your peak's sum too large?")
    listed = as_list(found) or []
    if len(listed) != len(saved) or any(getattr(one, "ndim", 0) or one not in (0, 1) for one in listed):
        raise NotYet(f"expected {len(saved)} times True or False, got {brief_repr(found)}.")
    chosen = tuple(map(bool, listed))
    if (peak := peak_bytes(chosen, saved, kept)) > limit:
        forward = sum(stored_bytes(chosen, saved, kept))
        why = (
            f"After the forward pass it is {forward}; but a block that is recomputed holds its whole `saved` while it "
            "runs backward."
            if forward <= limit
            else f"The forward pass alone leaves {forward}."
        )
        raise NotYet(f"{brief_repr(chosen)} holds {peak} at its peak. {why}")
    best = min(fitting, key=extra_s)
    if extra_s(chosen) > extra_s(best) * (1 + 1e-9) + 1e-12:
        raise NotYet(
            f"{brief_repr(chosen)} fits and costs {extra_s(chosen):.4g} s more; {brief_repr(best)} fits too and costs "
            f"{extra_s(best):.4g} s. Is your peak's sum too large?"
        )


_REGATHER = "FSDP gathers the parameters for forward, again for backward, and reduces and scatters the gradients."
_SCATTER = "A reduce-scatter sends half of what an all-reduce sends: each rank needs its own part of the sum only."
_ELEMENT = "How many bytes does each number take?"
_TWICE = "Four all-reduces per block and step, and a ring all-reduce sends nearly twice the tensor."
_BLOCKS = "Each block has its own four."
_OTHERS = "Of a ring's bytes a rank sends the share that others have: (ranks - 1) / ranks, once or twice."
_BOTH = "FSDP: 3 (n - 1) / n of all parameters. Tensor parallelism: 4 all-reduces a block, each 2 (n - 1) / n of it."


def traffic(answer: object) -> str:
    """Bytes of both ways and their crossover at drawn sizes; each wrong factor is told apart."""
    draw = random.Random(1307)
    # the first sizes keep the usual wrong factors apart
    cases = [(12 * 64**2, 1, 64, 128, 3, 8), (12 * 12_288**2 * 96, 96, 12_288, 2048, 8, 2), (1000, 3, 10, 7, 5, 4)]
    for _ in range(12):
        blocks, hidden = draw.randint(1, 100), draw.randint(8, 12_288)
        params = blocks * draw.randint(8, 16) * hidden**2
        cases.append((params, blocks, hidden, draw.randint(1, 10**6), draw.randint(2, 64), draw.choice((2, 4))))
    given = (
        "{params:,} parameters in {blocks} blocks of {hidden}, {tokens:,} tokens, {ranks} ranks, {element_bytes} B each"
    )
    over_cases(answer, cases, _sent, _judge_sent, given=given)
    return "Right from two ranks to 64, in 16 and in 32 bit, and the crossover depends on neither."


def _sent(
    params: int, blocks: int, hidden: int, tokens: int, ranks: int, element_bytes: int
) -> tuple[float, float, float]:
    others = (ranks - 1) / ranks
    tensor = 8 * others * blocks * tokens * hidden * element_bytes
    return 3 * others * params * element_bytes, tensor, 3 * params / (8 * blocks * hidden)


def _judge_sent(got: Any, expected: tuple[float, float, float], given: str, *case: int) -> None:
    _, blocks, _, _, ranks, element = case
    fsdp, tensor, crossover = expected
    found = parts(got, 3, "(FSDP's bytes, tensor parallelism's bytes, tokens)", given)
    others = {ranks / (ranks - 1): _OTHERS}
    gathers = {2 / 3: _REGATHER, 1 / 3: _REGATHER, 4 / 3: _SCATTER, 1 / element: _ELEMENT}
    reduces = {0.5: _TWICE, 0.25: _TWICE, 1 / blocks: _BLOCKS, 1 / element: _ELEMENT}
    for name, value, right, factors in (
        ("FSDP", found[0], fsdp, gathers | others),
        ("tensor parallelism", found[1], tensor, reduces | others),
    ):
        number = as_number(value, "bytes", f"{given}, {name}")
        hint = mistake(number / right, factors, _BOTH)
        number_close(number, right, rel=1e-9, unit="bytes", given=f"{given}, {name}", hint=hint)
    hint = "Set both equal and solve for the tokens: the bytes of an element and the share of the others cancel."
    number_close(found[2], crossover, rel=1e-9, unit="tokens", given=f"{given}, crossover", hint=hint)


CHECKS = {"13.2": bounds, "13.4": operators, "13.5": plan, "13.6": recomputation, "13.7": traffic}
