"""Plausible wrong answers of notebook 19: number -> (answer, words the check must say, misconception)."""

import itertools
import math
import statistics

import torch

# 19.3


def in_nats(loss, tokens, n_bytes):
    return loss * tokens / n_bytes


def nats_are_larger(loss, tokens, n_bytes):
    return loss * tokens * math.log(2) / n_bytes


def bits_a_token(loss, tokens, n_bytes):
    return loss / math.log(2)


def other_way_round(loss, tokens, n_bytes):
    return loss * n_bytes / math.log(2) / tokens


def whole_text(loss, tokens, n_bytes):
    return loss * tokens / math.log(2)


def perplexity(loss, tokens, n_bytes):
    return math.exp(loss)


def bits_of_a_byte(loss, tokens, n_bytes):
    return loss * tokens / math.log(2) / n_bytes / 8


def tokens_are_bytes(loss, tokens, n_bytes):
    return round(loss * tokens / math.log(2) / n_bytes, 2)


# 19.4a


def averaged(mean):
    def factors(below, rung):
        machine = mean([a[0] / a[1] * b[1] / b[0] for a, b in zip(below, rung, strict=True)])
        return machine, mean([a[1] / b[1] for a, b in zip(below, rung, strict=True)])

    return factors


right_factors = averaged(statistics.geometric_mean)


def seconds_and_tokens(below, rung):
    _, learning = right_factors(below, rung)
    return statistics.geometric_mean(
        a[0] / b[0] for a, b in zip(below, rung, strict=True)
    ), learning


def seconds_times_tokens(below, rung):
    machine, learning = right_factors(below, rung)
    return machine * learning**2, learning


def upside_down(below, rung):
    machine, learning = right_factors(below, rung)
    return 1 / machine, 1 / learning


def swapped(below, rung):
    return right_factors(below, rung)[::-1]


def of_sums(below, rung):
    return right_factors(below, rung)[0], sum(a[1] for a in below) / sum(b[1] for b in rung)


def one_gain(below, rung):
    return math.prod(right_factors(below, rung))


# 19.4b


def iterated(steps=5, scaled=True, transposed=True):
    def orthogonal(gradient):
        tall = transposed and len(gradient) > gradient.shape[1]
        x = gradient.T if tall else gradient
        x = x / (x.norm() + 1e-7) if scaled else x
        for _ in range(steps):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return x.T if tall else x

    return orthogonal


def only_scaled(gradient):
    return gradient / (gradient.norm() + 1e-7)


def by_zero(gradient):
    return iterated(scaled=False)(gradient / gradient.norm())


def signs(gradient):
    return gradient.sign()


def left_transposed(gradient):
    x = gradient.T if len(gradient) > gradient.shape[1] else gradient
    return iterated()(x)


def large_square(gradient):
    return iterated(transposed=False)(gradient)


def other_product(gradient):
    x = gradient / (gradient.norm() + 1e-7)
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    return x


def rows_of_length_one(gradient):
    return gradient / (gradient.norm(dim=1, keepdim=True) + 1e-7)


# 19.6a


def joined(needs, free):
    return sum(total <= free for total in itertools.accumulate(needs))


def blocks_of(sizes):
    return [math.ceil(tokens / 16) for tokens in sizes]


def right_admit(sizes, free, places):
    return joined(blocks_of(sizes[:places]), free)


def any_number(sizes, free, places):
    return joined(blocks_of(sizes), free)


def whole_blocks(sizes, free, places):
    return joined([tokens // 16 for tokens in sizes[:places]], free)


def shared_blocks(sizes, free, places):
    return joined([tokens / 16 for tokens in sizes[:places]], free)


def one_left(sizes, free, places):
    return joined(blocks_of(sizes[:places]), free - 1)


def each_by_itself(sizes, free, places):
    return sum(need <= free for need in blocks_of(sizes[:places]))


def whoever_fits(sizes, free, places):
    n = 0
    for need in blocks_of(sizes):
        if n < places and need <= free:
            free -= need
            n += 1
    return n


def tokens_are_blocks(sizes, free, places):
    return joined(sizes[:places], free)


def beyond_the_cache(sizes, free, places):
    return min(len(sizes), places)


def resized(table, free, needed):
    while len(table) < needed:
        table.append(free.pop())
    while len(table) > needed:
        free.append(table.pop())


def placed(table, n_tokens):
    return [16 * table[i // 16] + i % 16 for i in range(n_tokens)]


def right_slots(table, free, n_tokens):
    resized(table, free, math.ceil(n_tokens / 16))
    return placed(table, n_tokens)


def only_full_blocks(table, free, n_tokens):
    resized(table, free, n_tokens // 16)
    return placed(table, n_tokens)


def one_too_many(table, free, n_tokens):
    resized(table, free, n_tokens // 16 + 1)
    return placed(table, n_tokens)


def still_free(table, free, n_tokens):
    needed = math.ceil(n_tokens / 16)
    if len(table) < needed:
        table += free[: needed - len(table)]
    resized(table, free, needed)
    return placed(table, n_tokens)


def freed_twice(table, free, n_tokens):
    needed = math.ceil(n_tokens / 16)
    free += table[needed:]
    while len(table) < needed:
        table.append(free.pop())
    return placed(table, n_tokens)


def lost_blocks(table, free, n_tokens):
    needed = math.ceil(n_tokens / 16)
    del table[needed:]
    resized(table, free, needed)
    return placed(table, n_tokens)


def never_given_back(table, free, n_tokens):
    while len(table) < math.ceil(n_tokens / 16):
        table.append(free.pop())
    return placed(table, n_tokens)


def all_anew(table, free, n_tokens):
    free += table
    table.clear()
    free.reverse()
    resized(table, free, math.ceil(n_tokens / 16))
    return placed(table, n_tokens)


def without_the_table(table, free, n_tokens):
    resized(table, free, math.ceil(n_tokens / 16))
    return [*range(n_tokens)]


def from_one(table, free, n_tokens):
    resized(table, free, math.ceil(n_tokens / 16))
    return [slot + 1 for slot in placed(table, n_tokens)]


def of_blocks(table, free, n_tokens):
    resized(table, free, math.ceil(n_tokens / 16))
    return [16 * block + place for block in table for place in range(16)]


def numbers_of_blocks(table, free, n_tokens):
    resized(table, free, math.ceil(n_tokens / 16))
    return [table[i // 16] for i in range(n_tokens)]


# 19.6b


def n_right(draft, target):
    return [*(a == b for a, b in zip(draft, target, strict=False)), False].index(False)


def only_the_draft(draft, target):
    n = n_right(draft, target)
    return draft[:n], n


def whatever_agrees(draft, target):
    kept = [a for a, b in zip(draft, target, strict=False) if a == b]
    return [*kept, target[-1]], len(kept)


def whole_draft(draft, target):
    return [*draft, target[-1]], len(draft)


def whole_target(draft, target):
    return target, n_right(draft, target)


def wrong_one_too(draft, target):
    n = n_right(draft, target)
    return [*draft[: n + 1], *target[len(draft) : n + 1]], n


def last_of_all(draft, target):
    n = n_right(draft, target)
    return [*draft[:n], target[-1]], n


def not_rolled_back(draft, target):
    return target[: n_right(draft, target) + 1], len(draft)


def own_token_too(draft, target):
    n = n_right(draft, target)
    return target[: n + 1], n + 1


def one_place_later(draft, target):
    n = n_right(draft, target[1:])
    return target[: n + 1], n


def no_count(draft, target):
    return target[: n_right(draft, target) + 1]


WRONG = {
    "19.3": [
        (in_nats, "That is in nats", "wrong-unit"),
        (nats_are_larger, "a nat is more than a bit", "upside-down"),
        (bits_a_token, "share them out among the bytes", "wrong-denominator"),
        (other_way_round, "the other way round", "upside-down"),
        (whole_text, "bits of the whole text", "wrong-denominator"),
        (perplexity, "perplexity", "other-formula"),
        (bits_of_a_byte, "A byte isn't taken apart", "wrong-unit"),
        (tokens_are_bytes, "unrounded", "rounding-is-cosmetic"),
        (lambda loss, tokens, n_bytes: None, "got nothing", "result-of-another-kind"),
        (
            lambda loss, tokens, n_bytes: 3.58,
            "Bits of the whole text over its bytes",
            "hard-coded",
        ),
    ],
    "19.4a": [
        (seconds_and_tokens, "divide seconds by tokens first", "gain-has-no-order"),
        (seconds_times_tokens, "not seconds times tokens", "upside-down"),
        (upside_down, "upside down", "upside-down"),
        (swapped, "in the other order", "result-of-another-kind"),
        (averaged(statistics.fmean), "geometric mean", "averaged-at-the-wrong-place"),
        (averaged(statistics.median), "geometric mean", "averaged-at-the-wrong-place"),
        (of_sums, "Take each seed's own ratio", "pairs-mixed-up"),
        (
            one_gain,
            "expected (gain in seconds a token, gain in tokens)",
            "result-of-another-kind",
        ),
        (lambda below, rung: (1.0, 1.0), "geometric mean", "hard-coded"),
    ],
    "19.4b": [
        (only_scaled, "as unequal as before", "other-formula"),
        (iterated(steps=4), "the result of 4 steps", "off-by-one"),
        (iterated(steps=6), "the result of 6 steps", "off-by-one"),
        (iterated(scaled=False), "divided by its norm first", "right-for-one-case"),
        (by_zero, "may that be 0", "zero-never-happens"),
        (left_transposed, "of the gradient's shape", "axes-swapped"),
        (large_square, "S is the large square", "axes-swapped"),
        (
            lambda gradient: iterated(steps=4)(gradient.bfloat16()),
            "singular values from",
            "off-by-one",
        ),
        (signs, "singular values from", "other-formula"),
        (other_product, "singular values from", "other-formula"),
        (rows_of_length_one, "singular values from", "other-formula"),
        (
            lambda gradient: torch.linalg.svdvals(gradient),
            "of the gradient's shape",
            "result-of-another-kind",
        ),
        (lambda gradient: None, "expected a tensor", "result-of-another-kind"),
    ],
    "19.6a": [
        ((any_number, right_slots), "no more than `places`", "it-will-fit"),
        ((whole_blocks, right_slots), "round up", "rounding-is-cosmetic"),
        (
            (shared_blocks, right_slots),
            "round up for each request by itself",
            "rounding-is-cosmetic",
        ),
        ((one_left, right_slots), "The last free block may be taken", "off-by-one"),
        (
            (each_by_itself, right_slots),
            "those that joined before it have taken blocks",
            "it-will-fit",
        ),
        (
            (whoever_fits, right_slots),
            "A later one passes an earlier one",
            "order-is-free",
        ),
        ((tokens_are_blocks, right_slots), "are blocks of 16 tokens", "wrong-unit"),
        (
            (beyond_the_cache, right_slots),
            "The cache is full before that",
            "it-will-fit",
        ),
        (
            (lambda sizes, free, places: None, right_slots),
            "got nothing",
            "result-of-another-kind",
        ),
        ((lambda sizes, free, places: 2, right_slots), "2 join", "hard-coded"),
        (any_number, "Expected (admit, slots)", "result-of-another-kind"),
        (
            (right_admit, only_full_blocks),
            "The last block need not be full",
            "rest-left-out",
        ),
        ((right_admit, one_too_many), "no new one is taken", "off-by-one"),
        (
            (right_admit, still_free),
            "in the table and free at once",
            "copy-or-same-memory",
        ),
        (
            (right_admit, freed_twice),
            "in the table and free at once",
            "copy-or-same-memory",
        ),
        ((right_admit, lost_blocks), "neither in the table nor free", "rest-left-out"),
        ((right_admit, never_given_back), "go back to `free`", "it-will-fit"),
        ((right_admit, all_anew), "Earlier tokens are in them", "input-is-mine"),
        (
            (right_admit, without_the_table),
            "leaves the table out",
            "right-for-one-case",
        ),
        ((right_admit, from_one), "places of a block count from 0", "off-by-one"),
        ((right_admit, of_blocks), "whole blocks?", "rounding-is-cosmetic"),
        ((right_admit, numbers_of_blocks), "has place", "wrong-unit"),
        (
            (right_admit, lambda table, free, n_tokens: []),
            "Take blocks until",
            "does-less-work",
        ),
        (
            (right_admit, lambda table, free, n_tokens: None),
            "Take blocks until",
            "result-of-another-kind",
        ),
    ],
    "19.6b": [
        (only_the_draft, "the model's own token after them, too", "off-by-one"),
        (whatever_agrees, "A token after a wrong one was guessed", "order-is-free"),
        (whole_draft, "Nothing after the first wrong token", "right-for-one-case"),
        (whole_target, "Nothing after the first wrong token", "order-is-free"),
        (wrong_one_too, "In place of the wrong token", "off-by-one"),
        (last_of_all, "the one at the first wrong place", "off-by-one"),
        (not_rolled_back, "Wrong guesses would stay in the cache", "cache-anywhere"),
        (own_token_too, "it wasn't read yet", "off-by-one"),
        (one_place_later, "target[i] is what the model writes", "off-by-one"),
        (no_count, "expected (tokens that are kept", "result-of-another-kind"),
        (
            lambda draft, target: None,
            "expected (tokens that are kept",
            "result-of-another-kind",
        ),
        (lambda draft, target: ([5], 0), "are kept, and", "hard-coded"),
    ],
}
