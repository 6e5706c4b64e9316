"""Plausible wrong answers of notebook 13: number -> (answer, words the check must say)."""

import itertools

from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel

from exercises.nb13.wrong_operators import (
    COPY,
    SUM,
    InPlaceForward,
    added,
    averaged,
    flat,
    in_place,
    nothing,
    operator,
    passed_on,
    rank_0_only,
    summed_on_rank_0_only,
    tripled,
)

# 13.2


def every_cut(sizes, ranks):
    for inner in itertools.combinations(range(1, len(sizes)), ranks - 1):
        yield [0, *inner, len(sizes)]


def sums(sizes, cuts):
    return [sum(sizes[a:b]) for a, b in itertools.pairwise(cuts)]


def right_cut(sizes, ranks):
    return min(every_cut(sizes, ranks), key=lambda cuts: max(sums(sizes, cuts)))


def equal_numbers_of_layers(sizes, ranks):
    return [len(sizes) * rank // ranks for rank in range(ranks + 1)]


def filled_to_the_mean(sizes, ranks):
    cuts, held = [0], 0
    for i, size in enumerate(sizes):
        full = held and held + size > sum(sizes) / ranks
        if len(cuts) < ranks and (full or len(sizes) - i == ranks - len(cuts)):
            cuts, held = [*cuts, i], 0
        held += size
    return [*cuts, len(sizes)]


def largest_minimum(sizes, ranks):
    return max(every_cut(sizes, ranks), key=lambda cuts: min(sums(sizes, cuts)))


def two_ranks_only(sizes, ranks):
    return right_cut(sizes, 2)


def inner_cuts_only(sizes, ranks):
    return right_cut(sizes, ranks)[1:-1]


def off_by_one(sizes, ranks):
    return [0, *(cut - 1 for cut in right_cut(sizes, ranks)[1:])]


def lists_of_layers(sizes, ranks):
    return [list(range(a, b)) for a, b in itertools.pairwise(right_cut(sizes, ranks))]


def an_idle_rank(sizes, ranks):
    return [0] * ranks + [len(sizes)]


def floats(sizes, ranks):
    return [float(cut) for cut in right_cut(sizes, ranks)]


def infinite(sizes, ranks):
    return [float("inf")] * (ranks + 1)


def sorts_the_list(sizes, ranks):
    cuts = right_cut(sizes, ranks)
    sizes.sort()
    return cuts


# 13.5


def styles(**changed):
    first = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
    return first | {name: RowwiseParallel() for name in ("out", "down")} | changed


class ColwiseInName(ParallelStyle):
    """Splits nothing."""

    def _apply(self, module, device_mesh):
        return module


class RowwiseInName(ColwiseInName):
    """Nor does this."""


# 13.6


def peak(plan, saved, kept):
    stored = [k if again else s for again, s, k in zip(plan, saved, kept, strict=True)]
    return max(sum(stored[:i]) + saved[i] for i in range(len(saved)))


def plan_by(peak_of=peak, best=min, none=None):
    def cheapest_plan(saved, kept, forward_s, limit):
        every = itertools.product((False, True), repeat=len(saved))
        fitting = [plan for plan in every if peak_of(plan, saved, kept) <= limit]
        return best(fitting, key=lambda plan: sum(itertools.compress(forward_s, plan)), default=none)

    return cheapest_plan


def stored_only(plan, saved, kept):
    return sum(k if again else s for again, s, k in zip(plan, saved, kept, strict=True))


def a_block_on_top(plan, saved, kept):
    return stored_only(plan, saved, kept) + max([s for again, s in zip(plan, saved, strict=True) if again], default=0)


def everything_or_nothing(saved, kept, forward_s, limit):
    for again in (False, True):
        if peak([again] * len(saved), saved, kept) <= limit:
            return [again] * len(saved)
    return None


def the_first_blocks(saved, kept, forward_s, limit):
    for n in range(len(saved) + 1):
        plan = [i < n for i in range(len(saved))]
        if peak(plan, saved, kept) <= limit:
            return plan
    return None


def the_last_blocks(saved, kept, forward_s, limit):
    for n in range(len(saved) + 1):
        plan = [i >= len(saved) - n for i in range(len(saved))]
        if peak(plan, saved, kept) <= limit:
            return plan
    return None


def fewest_blocks(saved, kept, forward_s, limit):
    every = itertools.product((False, True), repeat=len(saved))
    return min((plan for plan in every if peak(plan, saved, kept) <= limit), key=sum, default=None)


def never_none(saved, kept, forward_s, limit):
    return plan_by(none=(True,) * len(saved))(saved, kept, forward_s, limit)


def below_the_limit(saved, kept, forward_s, limit):
    return plan_by()(saved, kept, forward_s, limit - 1)


def the_largest_saving_a_second(saved, kept, forward_s, limit):
    plan = [False] * len(saved)
    while peak(plan, saved, kept) > limit:
        left = [i for i, again in enumerate(plan) if not again]
        if not left:
            return None
        plan[max(left, key=lambda i: (saved[i] - kept[i]) / forward_s[i])] = True
    return plan


def empties_its_lists(saved, kept, forward_s, limit):
    plan = plan_by()(saved, kept, forward_s, limit)
    saved.clear()
    return plan


def turned_plan(saved, kept, forward_s, limit):
    plan = plan_by()(saved, kept, forward_s, limit)
    return plan and [not again for again in plan]


# 13.7


def both(gathers=3, reduces=4, ring=2, share=True, crossover=None, turned=False, whole=False, of_blocks=True):
    def sent_bytes(params, blocks, hidden, tokens, ranks, element_bytes):
        others = (ranks - 1) / ranks if share else 1
        bytes_each = 1 if whole else element_bytes
        fsdp = gathers * others * params * bytes_each
        tensor = reduces * ring * others * (blocks if of_blocks else 1) * tokens * hidden * bytes_each
        equal = 3 * params / (8 * blocks * hidden) if crossover is None else crossover(params, blocks, hidden, ranks)
        return (tensor, fsdp, equal) if turned else (fsdp, tensor, equal)

    return sent_bytes


WRONG = {
    "13.2": [
        (equal_numbers_of_layers, "on the fullest rank"),
        (filled_to_the_mean, "is possible"),
        (largest_minimum, "smallest maximum"),
        (two_ranks_only, "expected 4 numbers"),
        (inner_cuts_only, "expected 3 numbers"),
        (off_by_one, "from 0 to"),
        (lists_of_layers, "whole numbers"),
        (an_idle_rank, "without a layer"),
        (floats, "whole numbers (int"),
        (infinite, "whole numbers"),
        (sorts_the_list, "changed the list"),
        ([0, 1, 2], "Expected a function"),
    ],
    "13.4": [
        ((operator(passed_on, passed_on), operator(passed_on, passed_on)), "this rank's gradient only"),
        ((operator(added, added), operator(added, added)), "same on all ranks"),
        ((COPY, operator(added, added)), "factor 1"),
        ((SUM, COPY), "same on all ranks"),
        ((operator(passed_on, averaged), SUM), "mean over ranks"),
        ((COPY, operator(averaged, passed_on)), "parts of one sum"),
        ((operator(passed_on, in_place), SUM), "changed the gradient"),
        ((COPY, InPlaceForward), "changed the input"),
        ((operator(passed_on, summed_on_rank_0_only), SUM), "On rank 1 of 2"),
        ((operator(passed_on, rank_0_only), SUM), "wait for each other"),
        ((operator(tripled, added), SUM), "is off by"),
        ((COPY, operator(flat, passed_on)), "gives a tensor of (12,)"),
        ((COPY, operator(nothing, passed_on)), "returns None"),
        (COPY, "(Copy, Sum)"),
        ((added, passed_on), "torch.autograd.Function"),
    ],
    "13.5": [
        (styles(query=RowwiseParallel()), "attention needs whole numbers"),
        (styles(value=RowwiseParallel()), "parts of sums"),
        (styles(out=ColwiseParallel()), "split by heads already"),
        (styles(up=RowwiseParallel(), down=ColwiseParallel()), "GELU"),
        (styles(down=ColwiseParallel()), "is split already"),
        (styles(up=ColwiseParallel), "Call it"),
        (styles(key="column"), "expected ColwiseParallel()"),
        (styles(out=SequenceParallel()), "split by heads already"),
        (styles(down=RowwiseParallel(input_layouts=Replicate())), "does not run. On 2 ranks: rank"),
        (styles(up=ColwiseParallel(output_layouts=Replicate())), "same reduction dim"),
        (
            styles(up=ColwiseParallel(output_layouts=Replicate()), down=RowwiseParallel(input_layouts=Replicate())),
            "sends",
        ),
        (
            dict.fromkeys(("query", "key", "value", "up"), ColwiseInName())
            | dict.fromkeys(("out", "down"), RowwiseInName()),
            "holds 100%",
        ),
        ({"query": ColwiseParallel()}, "missing"),
    ],
    "13.6": [
        (plan_by(stored_only), "holds its whole `saved`"),
        (plan_by(a_block_on_top), "sum too large"),
        (everything_or_nothing, "fits too"),
        (the_first_blocks, "fits too"),
        (the_last_blocks, "fits too"),
        (fewest_blocks, "fits too"),
        (plan_by(best=max), "fits too"),
        (never_none, "nothing fits"),
        (turned_plan, "fits too"),
        (below_the_limit, "fits too"),
        (the_largest_saving_a_second, "fits too"),
        (empties_its_lists, "changed a list"),
        (lambda saved, kept, forward_s, limit: [1, 3], "True or False"),
    ],
    "13.7": [
        (both(gathers=2), "gathers the parameters for forward"),
        (both(gathers=4), "own part of the sum"),
        (both(reduces=2), "Four all-reduces"),
        (both(ring=1), "Four all-reduces"),
        (both(share=False), "share that others have"),
        (both(whole=True), "How many bytes"),
        (both(of_blocks=False), "its own four"),
        (both(turned=True), "Tensor parallelism: 4"),
        (both(crossover=lambda params, blocks, hidden, ranks: params / (8 * blocks * hidden)), "solve for"),
        (both(crossover=lambda params, blocks, hidden, ranks: 4.5 * hidden), "crossover"),
        (both(crossover=lambda params, blocks, hidden, ranks: 3 * params / (8 * blocks * hidden) / ranks), "crossover"),
        (lambda *given: 0.0, "expected (FSDP's bytes"),
    ],
}
