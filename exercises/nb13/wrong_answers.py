"""Plausible wrong answers of notebook 13: number -> (answer, words the check must say, misconception)."""

import math

import numpy as np
import torch
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
)

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

# 13.5


def styles(**changed):
    first = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
    return first | {name: RowwiseParallel() for name in ("out", "down")} | changed


class ColwiseInName(ColwiseParallel):
    """Splits nothing."""

    def _apply(self, module, device_mesh):
        return module


class RowwiseInName(RowwiseParallel):
    """Nor does this."""

    def _apply(self, module, device_mesh):
        return module


# 13.8


def merged(out_of, lse_of=lambda out_1, lse_1, out_2, lse_2: torch.logaddexp(lse_1, lse_2)):
    def merge(*parts):
        return out_of(*parts), lse_of(*parts)

    return merge


def right_out(out_1, lse_1, out_2, lse_2):
    lse = torch.logaddexp(lse_1, lse_2)
    return out_1 * (lse_1 - lse).exp() + out_2 * (lse_2 - lse).exp()


def average(out_1, lse_1, out_2, lse_2):
    return (out_1 + out_2) / 2, torch.logaddexp(lse_1, lse_2)


def adds_the_logarithms(out_1, lse_1, out_2, lse_2):
    lse = torch.logaddexp(lse_1, lse_2)
    return out_1 * (lse_1 - lse).exp() + out_2 * (lse_2 - lse).exp(), lse_1 + lse_2


def adds_exponentials(out_1, lse_1, out_2, lse_2):
    sum_1, sum_2 = lse_1.exp(), lse_2.exp()
    total = sum_1 + sum_2
    return (out_1 * sum_1 + out_2 * sum_2) / total, total.log()


def by_exponentials(out_1, lse_1, out_2, lse_2):
    sum_1, sum_2 = lse_1.exp(), lse_2.exp()
    return (out_1 * sum_1 + out_2 * sum_2) / (sum_1 + sum_2)


def by_exponentials_clamped(out_1, lse_1, out_2, lse_2):
    return by_exponentials(out_1, lse_1.clamp(max=700), out_2, lse_2.clamp(max=700))


def by_the_difference(out_1, lse_1, out_2, lse_2):
    second = (lse_2 - lse_1).exp()
    return (out_1 + out_2 * second) / (1 + second), lse_1 + torch.log1p(second)


def with_epsilon(out_1, lse_1, out_2, lse_2):
    largest = torch.maximum(lse_1, lse_2)
    sum_1, sum_2 = (lse_1 - largest).exp(), (lse_2 - largest).exp()
    return (out_1 * sum_1 + out_2 * sum_2) / (sum_1 + sum_2 + 1e-6)


def changes_its_input(out_1, lse_1, out_2, lse_2):
    lse = torch.logaddexp(lse_1, lse_2)
    out_1.data *= (lse_1 - lse).exp()
    return out_1 + out_2 * (lse_2 - lse).exp(), lse


def detached(out_1, lse_1, out_2, lse_2):
    lse = torch.logaddexp(lse_1, lse_2)
    return out_1 * (lse_1 - lse).exp().detach() + out_2 * (lse_2 - lse).exp().detach(), lse


def by_numpy(*parts):
    out_1, lse_1, out_2, lse_2 = (x.detach().numpy() for x in parts)
    lse = np.logaddexp(lse_1, lse_2)
    return torch.tensor(
        out_1 * np.exp(lse_1 - lse) + out_2 * np.exp(lse_2 - lse)
    ), torch.tensor(lse)


def swapped_weights(out_1, lse_1, out_2, lse_2):
    return right_out(out_2, lse_1, out_1, lse_2)


def weights_by_logarithms(out_1, lse_1, out_2, lse_2):
    return (out_1 * lse_1 + out_2 * lse_2) / (lse_1 + lse_2)


def larger_part(out_1, lse_1, out_2, lse_2):
    return torch.where(lse_1 > lse_2, out_1, out_2)


# 13.9


def kept(most_of=lambda exact: math.ceil(exact), dtype=torch.bool):
    def within_capacity(chosen, experts, factor):
        most = most_of(factor * len(chosen) / experts)
        listed = chosen.tolist()
        return torch.tensor(
            [listed[:i].count(e) < most for i, e in enumerate(listed)], dtype=dtype
        )

    return within_capacity


def counts(rows_of):
    """A count for each rank, from a function of a rank and of the places (tokens, k)."""

    def rows_to(chosen, per_rank, ranks):
        places = chosen // per_rank
        return torch.stack([rows_of(rank, places) for rank in range(ranks)])

    return rows_to


def copies(chosen, per_rank, ranks):
    return (chosen // per_rank).flatten().bincount(minlength=ranks)


def only_ranks_with_some(chosen, per_rank, ranks):
    reached = [row.unique() for row in chosen // per_rank]
    return torch.cat(reached).bincount()


def dealt_out(chosen, per_rank, ranks):
    return torch.stack([(chosen % ranks == rank).any(1).sum() for rank in range(ranks)])


def without_its_own(chosen, per_rank, ranks):
    rows = counts(lambda rank, places: (places == rank).any(1).sum())(chosen, per_rank, ranks)
    return torch.cat([rows[:1] * 0, rows[1:]])


def by_expert(chosen, per_rank, ranks):
    return chosen.flatten().bincount(minlength=per_rank * ranks)


def first_choice(chosen, per_rank, ranks):
    return (chosen[:, 0] // per_rank).bincount(minlength=ranks)


def each_place_once(chosen, per_rank, ranks):
    return (chosen // per_rank).unique().bincount(minlength=ranks)


def ranks_in_place(chosen, per_rank, ranks):
    chosen //= per_rank
    return torch.stack([(chosen == rank).any(1).sum() for rank in range(ranks)])


def rounds_down(chosen, experts, factor):
    most, listed = math.floor(factor * len(chosen) / experts), chosen.tolist()
    return torch.tensor(
        [listed[:i].count(e) < most for i, e in enumerate(listed)], dtype=torch.bool
    )


def without_factor(chosen, experts, factor):
    return kept()(chosen, experts, 1.0)


def of_all_tokens(chosen, experts, factor):
    return kept()(chosen, 1, factor)


def the_last_ones(chosen, experts, factor):
    return kept()(chosen.flip(0), experts, factor).flip(0)


def the_first_of_all(chosen, experts, factor):
    return torch.arange(len(chosen)) < math.ceil(factor * len(chosen) / experts)


def one_expert_after_the_other(chosen, experts, factor):
    order = chosen.argsort(stable=True)
    return kept()(chosen[order], experts, factor)


def all_or_none_of_an_expert(chosen, experts, factor):
    return (chosen.bincount(minlength=experts) <= math.ceil(factor * len(chosen) / experts))[
        chosen
    ]


def numbers_of_tokens(chosen, experts, factor):
    return kept()(chosen, experts, factor).nonzero()[:, 0]


def a_list(chosen, experts, factor):
    return kept()(chosen, experts, factor).tolist()


def sorts_its_tensor(chosen, experts, factor):
    found = kept()(chosen, experts, factor)
    chosen.copy_(chosen.sort().values)
    return found


WRONG = {
    "13.4": [
        (
            (operator(passed_on, passed_on), operator(passed_on, passed_on)),
            "this rank's gradient only",
            "forward-and-backward-alike",
        ),
        (
            (operator(added, added), operator(added, added)),
            "same on all ranks",
            "forward-and-backward-alike",
        ),
        ((COPY, operator(added, added)), "factor 1", "forward-and-backward-alike"),
        ((SUM, COPY), "same on all ranks", "forward-and-backward-alike"),
        ((operator(passed_on, averaged), SUM), "mean over ranks", "sum-for-mean"),
        ((COPY, operator(averaged, passed_on)), "parts of one sum", "sum-for-mean"),
        ((operator(passed_on, in_place), SUM), "changed the gradient", "input-is-mine"),
        ((COPY, InPlaceForward), "changed the input", "input-is-mine"),
        (
            (operator(passed_on, summed_on_rank_0_only), SUM),
            "On rank 1 of 2",
            "ranks-share-by-themselves",
        ),
        (
            (operator(passed_on, rank_0_only), SUM),
            "wait for each other",
            "ranks-share-by-themselves",
        ),
        ((operator(tripled, added), SUM), "is off by", "other-formula"),
        (
            (COPY, operator(flat, passed_on)),
            "gives a tensor of (12,)",
            "result-of-another-kind",
        ),
        ((COPY, operator(nothing, passed_on)), "returns None", "result-of-another-kind"),
        (COPY, "(Copy, Sum)", "result-of-another-kind"),
        ((added, passed_on), "torch.autograd.Function", "result-of-another-kind"),
    ],
    "13.5": [
        (
            styles(query=RowwiseParallel()),
            "attention needs whole numbers",
            "either-split-works",
        ),
        (styles(value=RowwiseParallel()), "parts of sums", "either-split-works"),
        (styles(out=ColwiseParallel()), "split by heads already", "either-split-works"),
        (styles(up=RowwiseParallel(), down=ColwiseParallel()), "GELU", "either-split-works"),
        (styles(down=ColwiseParallel()), "is split already", "either-split-works"),
        (styles(up=ColwiseParallel), "Call it", "result-of-another-kind"),
        (styles(key="column"), "expected ColwiseParallel()", "result-of-another-kind"),
        (styles(out=SequenceParallel()), "split by heads already", "either-split-works"),
        (
            styles(down=RowwiseParallel(input_layouts=Replicate())),
            "does not run. On 2 ranks: rank",
            "either-split-works",
        ),
        (
            styles(up=ColwiseParallel(output_layouts=Replicate())),
            "same reduction dim",
            "either-split-works",
        ),
        (
            styles(
                up=ColwiseParallel(output_layouts=Replicate()),
                down=RowwiseParallel(input_layouts=Replicate()),
            ),
            "sends",
            "whole-tensor-travels",
        ),
        (
            dict.fromkeys(("query", "key", "value", "up"), ColwiseInName())
            | dict.fromkeys(("out", "down"), RowwiseInName()),
            "holds 100%",
            "goes-round-the-tool",
        ),
        ({"query": ColwiseParallel()}, "missing", "result-of-another-kind"),
        (styles(norm1=Replicate()), "has no layer 'norm1'", "result-of-another-kind"),
        (
            styles(**{"mlp.up": ColwiseParallel()}),
            "has no layer 'mlp.up'",
            "result-of-another-kind",
        ),
    ],
    "13.8": [
        (average, "weigh the same", "mean-of-unequal-parts"),
        (
            merged(lambda out_1, lse_1, out_2, lse_2: out_1 + out_2),
            "parts are added up",
            "mean-of-unequal-parts",
        ),
        (merged(swapped_weights), "swapped", "other-formula"),
        (
            merged(weights_by_logarithms),
            "the weights are the logarithms",
            "logs-add-like-numbers",
        ),
        (merged(larger_part), "taken alone", "other-formula"),
        (
            merged(
                lambda out_1, lse_1, out_2, lse_2: out_1 * lse_1.exp() + out_2 * lse_2.exp()
            ),
            "add up to 1",
            "wrong-denominator",
        ),
        (adds_exponentials, "differences only", "exp-never-overflows"),
        (by_the_difference, "never above 0", "exp-never-overflows"),
        (merged(by_exponentials_clamped), "weigh the same", "exp-never-overflows"),
        (merged(with_epsilon), "few digits", "other-formula"),
        (adds_the_logarithms, "logarithm of a product", "logs-add-like-numbers"),
        (
            merged(right_out, lambda out_1, lse_1, out_2, lse_2: torch.maximum(lse_1, lse_2)),
            "larger of the two",
            "logs-add-like-numbers",
        ),
        (
            merged(
                right_out, lambda out_1, lse_1, out_2, lse_2: (lse_1.exp() + lse_2.exp()).log()
            ),
            "differences only",
            "exp-never-overflows",
        ),
        (
            merged(right_out, lambda out_1, lse_1, out_2, lse_2: lse_1.exp() + lse_2.exp()),
            "lse is its logarithm",
            "logs-add-like-numbers",
        ),
        (
            merged(
                right_out, lambda out_1, lse_1, out_2, lse_2: torch.logaddexp2(lse_1, lse_2)
            ),
            "is wrong",
            "other-formula",
        ),
        (
            merged(
                right_out,
                lambda out_1, lse_1, out_2, lse_2: torch.logaddexp(lse_1, lse_2) / math.log(2),
            ),
            "base of 2",
            "other-formula",
        ),
        (
            merged(right_out, lambda out_1, lse_1, out_2, lse_2: lse_1),
            "first part's alone",
            "other-formula",
        ),
        (
            merged(right_out, lambda *parts: torch.logaddexp(parts[1], parts[3])[..., 0]),
            "of shape",
            "result-of-another-kind",
        ),
        (
            lambda *parts: merged(right_out)(*parts)[::-1],
            "in that order",
            "result-of-another-kind",
        ),
        (right_out, "expected (out, lse)", "result-of-another-kind"),
        (
            lambda *parts: tuple(x.float() for x in merged(right_out)(*parts)),
            "float32",
            "low-precision-is-enough",
        ),
        (changes_its_input, "changed a tensor", "input-is-mine"),
        (detached, "gradients", "autograd-follows-intent"),
        (by_numpy, "autograd", "autograd-follows-intent"),
        (lambda *parts: parts[:2], "first part's alone", "does-less-work"),
        (1.0, "Expected a function", "result-of-another-kind"),
    ],
    "13.9": [
        (rounds_down, "Round the capacity up", "rounding-is-cosmetic"),
        (kept(lambda exact: math.ceil(exact) + 1), "one too many", "off-by-one"),
        (kept(lambda exact: math.ceil(exact) - 1), "Round the capacity up", "off-by-one"),
        (kept(lambda exact: 10**6), "share of the tokens", "other-formula"),
        (without_factor, "Does the factor count", "other-formula"),
        (of_all_tokens, "share of the tokens", "wrong-denominator"),
        (the_last_ones, "the first ones are kept", "other-formula"),
        (the_first_of_all, "the first ones are kept", "other-formula"),
        (one_expert_after_the_other, "a capacity of its own", "other-formula"),
        (all_or_none_of_an_expert, "the first ones are kept", "other-formula"),
        (numbers_of_tokens, "booleans", "result-of-another-kind"),
        (a_list, "tensor of", "result-of-another-kind"),
        (kept(dtype=torch.int64), "booleans", "result-of-another-kind"),
        (sorts_its_tensor, "changed the tensor", "input-is-mine"),
        (
            lambda chosen, experts, factor: ~kept()(chosen, experts, factor),
            "an expert's capacity is",
            "upside-down",
        ),
        (3, "Expected a function", "result-of-another-kind"),
    ],
    "13.9b": [
        (copies, "to a rank once", "whole-tensor-travels"),
        (first_choice, "other experts need it too", "half-the-work-counted"),
        (dealt_out, "deals them out", "other-formula"),
        (without_its_own, "stay on a rank count", "rest-left-out"),
        (by_expert, "integers, got", "result-of-another-kind"),
        (only_ranks_with_some, "integers, got", "zero-never-happens"),
        (each_place_once, "rows, got", "half-the-work-counted"),
        (
            counts(lambda rank, places: (places == rank).all(1).sum()),
            "rows, got",
            "other-formula",
        ),
        (
            counts(lambda rank, places: (places == rank).any(1).float().mean()),
            "integers, got",
            "result-of-another-kind",
        ),
        (
            counts(lambda rank, places: (places == rank).any(0).sum()),
            "rows, got",
            "axes-swapped",
        ),
        (
            lambda chosen, per_rank, ranks: [len(chosen)] * ranks,
            "integers, got",
            "result-of-another-kind",
        ),
        (
            lambda chosen, per_rank, ranks: torch.full((ranks,), len(chosen)),
            "rows, got",
            "whole-tensor-travels",
        ),
        (ranks_in_place, "changed the tensor", "input-is-mine"),
        (3, "Expected a function", "result-of-another-kind"),
    ],
}
