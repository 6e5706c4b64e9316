"""Plausible wrong answers of notebook 14: number -> (answer, words the check must say, misconception)."""

import itertools

from trainplan import schedule

TRANSFER_S = 3e-4

# 14.2


def bubble(ranks, microbatches, forward_s, backward_s, transfer_s):
    idle_s = (ranks - 1) * (forward_s + backward_s + 2 * transfer_s)
    return idle_s / (idle_s + microbatches * (forward_s + backward_s))


def over_the_work(ranks, microbatches, forward_s, backward_s, transfer_s):
    idle_s = (ranks - 1) * (forward_s + backward_s + 2 * transfer_s)
    return idle_s / (microbatches * (forward_s + backward_s))


def without_transfers(ranks, microbatches, forward_s, backward_s, transfer_s):
    idle_s = (ranks - 1) * (forward_s + backward_s)
    return idle_s / (idle_s + microbatches * (forward_s + backward_s))


def one_transfer(ranks, microbatches, forward_s, backward_s, transfer_s):
    idle_s = (ranks - 1) * (forward_s + backward_s + transfer_s)
    return idle_s / (idle_s + microbatches * (forward_s + backward_s))


def a_hop_too_many(ranks, microbatches, forward_s, backward_s, transfer_s):
    idle_s = ranks * (forward_s + backward_s + 2 * transfer_s)
    return idle_s / (idle_s + microbatches * (forward_s + backward_s))


def busy(*given):
    return 1 - bubble(*given)


def transfers_as_work(ranks, microbatches, forward_s, backward_s, transfer_s):
    idle_s = (ranks - 1) * (forward_s + backward_s)
    return idle_s / (
        idle_s + (ranks - 1) * 2 * transfer_s + microbatches * (forward_s + backward_s)
    )


def right_for_four(ranks, microbatches, forward_s, backward_s, transfer_s):
    return bubble(4, microbatches, forward_s, backward_s, transfer_s)


# 14.3


def by_hand(order, transfer_s=TRANSFER_S):
    return {"order": order, "transfer_s": transfer_s}


GOOD = schedule.one_f_one_b(3, 5)


def changed(rank, text, order=GOOD):
    return by_hand(
        [text.split() if i == rank else list(steps) for i, steps in enumerate(order)]
    )


ONE_AT_A_TIME = [[f"{kind}{i}" for i in range(5) for kind in "FB"] for _ in range(3)]
WITH_W = [
    [part for step in steps for part in ([step, f"W{step[1:]}"] if step[0] == "B" else [step])]
    for steps in GOOD
]
ONE_MORE = ["F0", "F1", "F2", "F3", "B0", "F4", "B1", "B2", "B3", "B4"]
PIECES = [
    [f"{part[0]}{i}.{part[1]}" for part in ("F0", "F1", "B1", "B0") for i in range(5)]
] * 3

# 14.5


def by_rule(rule, transfer_s=TRANSFER_S):
    return {"order": rule, "transfer_s": transfer_s}


def w_at_once(ranks, microbatches):
    """The weights' half right behind the inputs' half: some bubble goes, too little."""
    found = []
    for steps in schedule.one_f_one_b(ranks, microbatches):
        found.append(
            [part for s in steps for part in ([s, f"W{s[1:]}"] if s[0] == "B" else [s])]
        )
    return found


def w_last(ranks, microbatches):
    return [
        [*steps, *(f"W{i}" for i in range(microbatches))]
        for steps in schedule.one_f_one_b(ranks, microbatches)
    ]


def last_w_lost(ranks, microbatches):
    return [
        [s for s in steps if s != f"W{microbatches - 1}"]
        for steps in schedule.zb_h1(ranks, microbatches)
    ]


def w_before_b(ranks, microbatches):
    swap = {"B": "W", "W": "B", "F": "F"}
    return [
        [swap[s[0]] + s[1:] for s in steps] for steps in schedule.zb_h1(ranks, microbatches)
    ]


def last_rank_first(ranks, microbatches):
    return schedule.zb_h1(ranks, microbatches)[::-1]


def always(ranks, microbatches):
    return schedule.zb_h1(4, 8)


# 14.5b

FOLD = schedule.zb_v(2, 3)
ONE_MICROBATCH_AT_A_TIME = [
    [
        f"{part[0]}{i}.{part[1]}"
        for i in range(3)
        for part in ("F0", "F1", "B1", "W1", "B0", "W0")
    ]
] * 2


def refolded(rank, text):
    return [text.split() if i == rank else list(steps) for i, steps in enumerate(FOLD)]


# 14.6


def greedy(seconds, ranks):
    """Fill each stage up to the mean."""
    counts, mean = [0] * ranks, sum(seconds) / ranks
    rank, filled = 0, 0.0
    for i, s in enumerate(seconds):
        if (
            counts[rank]
            and rank < ranks - 1
            and (filled + s > mean or len(seconds) - i <= ranks - 1 - rank)
        ):
            rank, filled = rank + 1, 0.0
        counts[rank] += 1
        filled += s
    return counts


def even(seconds, ranks):
    share, rest = divmod(len(seconds), ranks)
    return [share + (rank < rest) for rank in range(ranks)]


def cuts(value=lambda a, b: b - a, best=min):
    def balance(seconds, ranks):
        def edges(at):
            return list(itertools.pairwise((0, *at, len(seconds))))

        every = itertools.combinations(range(1, len(seconds)), ranks - 1)
        chosen = best(every, key=lambda at: max(sum(seconds[a:b]) for a, b in edges(at)))
        return [value(a, b) for a, b in edges(chosen)]

    return balance


WRONG = {
    "14.2": [
        (over_the_work, "idle time over working time", "wrong-denominator"),
        (lambda *given: 100 * bubble(*given), "in percent", "wrong-unit"),
        (busy, "share of time that a rank works", "upside-down"),
        (without_transfers, "leaves the transfers out", "latency-is-free"),
        (one_transfer, "gradients travel back", "half-the-work-counted"),
        (a_hop_too_many, "in front of the last one", "off-by-one"),
        (right_for_four, "ranks=1", "right-for-one-case"),
        (
            transfers_as_work,
            "0.5455 is 0.75x what we expect. How long",
            "wrong-denominator",
        ),
        (lambda p, m, f, b, t: 3 / 11, "is not what we expect", "hard-coded"),
        (
            lambda p, m, f, b, t: bubble(p, m, f, b, t) if m > 1 else None,
            "a number (a share), got nothing",
            "zero-never-happens",
        ),
        (
            lambda p, m, f, b, t: f"{100 / m:.0f} %",
            "expected a number",
            "result-of-another-kind",
        ),
    ],
    "14.3": [
        (
            by_hand(schedule.gpipe(3, 5)),
            "Over memory: rank 0 holds 5 micro-batches at once, 2 more than the 3",
            "it-will-fit",
        ),
        (by_hand(ONE_AT_A_TIME), "Over time", "works-in-turns"),
        (changed(0, "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4"), "Over time", "works-in-turns"),
        (by_hand([GOOD[0], GOOD[0], GOOD[2]]), "Over time", "works-in-turns"),
        (
            by_hand([ONE_MORE, ONE_MORE, GOOD[2]]),
            "rank 0 holds 4 micro-batches at once, 1 more",
            "it-will-fit",
        ),
        (
            changed(1, "B0 F0 F1 F2 B1 F3 B2 F4 B3 B4"),
            "Rank 1 does B0 before F0",
            "order-is-free",
        ),
        (changed(1, "F0 F1 B0 F2 B1 F3 B2 B3 B4"), "F4", "other-formula"),
        (changed(0, "F0 F1 F2 B0 F3 B1 F4 B2 B3"), "never does B4", "other-formula"),
        (changed(0, "F0 F1 F2 F2 B0 F3 B1 F4 B2 B3 B4"), "twice", "other-formula"),
        (
            changed(0, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4", schedule.gpipe(3, 5)),
            "deadlock",
            "order-is-free",
        ),
        (
            by_hand(schedule.one_f_one_b(3, 4)),
            "4 micro-batches, but 5",
            "result-of-another-kind",
        ),
        (by_hand(schedule.one_f_one_b(4, 5)), "4 ranks, but 3", "result-of-another-kind"),
        (by_hand(WITH_W), "There is a W", "result-of-another-kind"),
        (by_hand(PIECES), "leave out the dot", "result-of-another-kind"),
        (changed(0, "F0 F1 F2 B0 F3 B1 X4 B2 B3 B4"), "X4", "result-of-another-kind"),
        (
            by_hand([" ".join(steps) for steps in GOOD]),
            "list of steps",
            "result-of-another-kind",
        ),
        (by_hand(GOOD, transfer_s=-1.0), "transfer_s", "result-of-another-kind"),
        (by_hand(GOOD, transfer_s="fast"), "transfer_s", "result-of-another-kind"),
        (GOOD, "Expected a dict", "result-of-another-kind"),
    ],
    "14.5": [
        (by_rule(schedule.one_f_one_b), "is no W in it", "backward-is-one-step"),
        (by_rule(w_at_once), "Over time", "backward-is-one-step"),
        (by_rule(w_last), "Over memory", "it-will-fit"),
        (
            by_rule(schedule.zb_h2),
            "Over memory: rank 0 holds 7 micro-batches at once, 3 more than the 4",
            "it-will-fit",
        ),
        (by_rule(last_w_lost), "W7", "other-formula"),
        (by_rule(w_before_b), "before", "order-is-free"),
        (by_rule(last_rank_first), "deadlock", "order-is-free"),
        (by_rule(always), "but 2 were asked for", "right-for-one-case"),
        (by_rule(schedule.zb_h1(4, 8)), "Expected a function", "result-of-another-kind"),
        (
            by_rule(lambda p, m: schedule.zb_h1(p, m - 1)),
            "7 micro-batches, but 8",
            "off-by-one",
        ),
        (
            by_rule(lambda p, m: schedule.zb_h1(p, m) if m > 2 else None),
            "Is there a return",
            "zero-never-happens",
        ),
        (
            by_rule(lambda p, m: 1 / (p - 5) and schedule.zb_h1(p, m)),
            "ZeroDivisionError",
            "zero-never-happens",
        ),
        (schedule.zb_h1, "Expected a dict", "result-of-another-kind"),
    ],
    "14.5b": [
        (
            ONE_MICROBATCH_AT_A_TIME,
            "Rank 0 idles before F0.1, as long as 2 of its steps take",
            "works-in-turns",
        ),
        (
            refolded(
                0,
                "F0.0 F1.0 F0.1 B0.1 W0.1 F2.0 F1.1 B1.1 W1.1 B0.0 W0.0 F2.1 B2.1 W2.1 B1.0 W1.0 B2.0 W2.0",
            ),
            "idles",
            "works-in-turns",
        ),
        (
            refolded(
                1,
                "F0.0 F0.1 F1.0 F1.1 F2.0 F2.1 B0.1 B0.0 B1.1 B1.0 B2.1 B2.0 W0.1 W0.0 W1.1 W1.0 W2.1 W2.0",
            ),
            "rank 1 holds 3 micro-batches at once, 1 more than the 2 allowed. A W frees half of one",
            "it-will-fit",
        ),
        ([FOLD[0], FOLD[0]], "Rank 0 idles before F0.1, as long as 2", "other-formula"),
        (FOLD[::-1], "deadlock", "order-is-free"),
        (schedule.zb_v(2, 4), "4 micro-batches, but 3", "result-of-another-kind"),
        (schedule.interleaved(2, 4, 2), "deadlock", "order-is-free"),
        (
            [[s for s in steps if s[0] != "W"] for steps in FOLD],
            "There is no W",
            "backward-is-one-step",
        ),
        (schedule.zb_h1(2, 3), "two chunks here", "result-of-another-kind"),
        (schedule.zb_v(3, 3), "3 ranks, but 2", "result-of-another-kind"),
        (
            refolded(0, " ".join(FOLD[0]).replace("W2.0", "")),
            "never does W2.0",
            "other-formula",
        ),
        ([" ".join(steps) for steps in FOLD], "list of steps", "result-of-another-kind"),
        ({"order": FOLD}, "list of steps for each rank", "result-of-another-kind"),
    ],
    "14.6": [
        (greedy, "has a slowest stage of", "uneven-shares"),
        (even, "has a slowest stage of", "uneven-shares"),
        (cuts(best=max), "has a slowest stage of", "other-formula"),
        (cuts(value=lambda a, b: b), "Each belongs to one stage", "other-formula"),
        (cuts(value=lambda a, b: (a, b)), "whole number of layers", "result-of-another-kind"),
        (
            lambda seconds, ranks: [len(seconds)],
            "each of the 2 ranks",
            "result-of-another-kind",
        ),
        (
            lambda seconds, ranks: [len(seconds)] + [0] * (ranks - 1),
            "without a layer",
            "other-formula",
        ),
        (lambda seconds, ranks: [1] * ranks, "Each belongs to one stage", "rest-left-out"),
        (
            lambda seconds, ranks: sum(seconds) / ranks,
            "expected a list",
            "result-of-another-kind",
        ),
        (
            lambda seconds, ranks: even(seconds, ranks) if seconds.sort() is None else None,
            "slowest stage",
            "input-is-mine",
        ),
    ],
}
