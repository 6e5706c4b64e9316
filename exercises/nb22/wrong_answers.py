"""Plausible wrong answers of notebook 22: number -> (answer, words the check must say, misconception)."""

import operator

import numpy as np
import torch

from exercises.nb22.fpga import skewed
from labkit.lesson.notebook_files import tagged_cells

# 22.2


def at_once(rows):
    return np.vstack([rows.T, np.zeros((len(rows) - 1, len(rows)), int)])


def last_first(rows):
    return skewed(rows[::-1])[:, ::-1]


def one_clock_late(rows):
    return np.roll(skewed(rows), 1, axis=0)


def wrapped(rows):
    n, k = rows.shape
    clocks = np.zeros((k + n - 1, n), int)
    for i in range(n):
        clocks[:, i] = np.resize(np.roll(rows[i], i), k + n - 1)
    return clocks


def right_for_squares(rows):
    n, _ = rows.shape
    clocks = np.zeros((2 * n - 1, n), int)
    for i in range(n):
        clocks[i : i + n, i] = np.resize(rows[i], n)
    return clocks


# 22.3


def rows_scaled(divide, rounded=torch.round, size=lambda w: w.abs().amax(dim=1)):
    def quantized(weights, bits):
        scales = size(weights) / divide(bits)
        return rounded(weights / scales[:, None]), scales

    return quantized


def most(bits):
    return 2 ** (bits - 1) - 1


def one_scale(weights, bits):
    scale = weights.abs().max() / (2 ** (bits - 1) - 1)
    return (weights / scale).round(), scale.expand(len(weights))


def by_column(weights, bits):
    scales = weights.abs().amax(dim=0) / (2 ** (bits - 1) - 1)
    return (weights / scales).round(), scales


# 22.4

_NAMES = tagged_cells("22", "design")
ProcessingElement, Module, Signal, signed = (
    _NAMES[n] for n in ("ProcessingElement", "Module", "Signal", "signed")
)


class FirstTooEarly(ProcessingElement):
    def accumulate(self, m, product, first):
        kept = Signal(signed(16))
        m.d.sync += kept.eq(product)
        super().accumulate(m, kept, first)


class RegistersBeforeTheProduct(ProcessingElement):
    def accumulate(self, m, product, first):
        a, b, late = Signal(signed(8)), Signal(signed(8)), Signal()
        m.d.sync += [a.eq(self.a), b.eq(self.b), late.eq(first)]
        super().accumulate(m, a * b, late)


class ConnectedAtOnce(ProcessingElement):
    def accumulate(self, m, product, first):
        kept, late = Signal(signed(16)), Signal()
        m.d.comb += [kept.eq(product), late.eq(first)]
        super().accumulate(m, kept, late)


class DelayedSum(ProcessingElement):
    """The whole sum a clock later, by a register behind the adder."""

    def accumulate(self, m, product, first):
        early, late = Signal(signed(32)), Signal()
        m.d.sync += [
            late.eq(first),
            self.total.eq(early),
            early.eq(early + product),
            self.out.eq(self.below),
        ]
        with m.If(first):
            m.d.sync += early.eq(product)
        with m.If(late):
            m.d.sync += self.out.eq(self.total)


class TooNarrow(ProcessingElement):
    def accumulate(self, m, product, first):
        kept, late = Signal(signed(8)), Signal()
        m.d.sync += [kept.eq(product), late.eq(first)]
        super().accumulate(m, kept, late)


class OneBitTooNarrow(ProcessingElement):
    """-128 x -128 overflows."""

    def accumulate(self, m, product, first):
        kept, late = Signal(signed(15)), Signal()
        m.d.sync += [kept.eq(product), late.eq(first)]
        super().accumulate(m, kept, late)


class SumTooNarrow(ProcessingElement):
    """24 bits hold 511 of the largest products."""

    def accumulate(self, m, product, first):
        kept, late, total = Signal(signed(16)), Signal(), Signal(signed(24))
        m.d.comb += self.total.eq(total)
        m.d.sync += [
            kept.eq(product),
            late.eq(first),
            total.eq(total + kept),
            self.out.eq(self.below),
        ]
        with m.If(late):
            m.d.sync += [total.eq(kept), self.out.eq(total)]


class Unsigned(ProcessingElement):
    def accumulate(self, m, product, first):
        kept, late = Signal(16), Signal()
        m.d.sync += [kept.eq(product), late.eq(first)]
        super().accumulate(m, kept, late)


class NeighborsLate(ProcessingElement):
    def accumulate(self, m, product, first):
        kept, late = Signal(signed(16)), Signal()
        m.d.sync += [kept.eq(product), late.eq(first), self.first_right.eq(late)]
        super().accumulate(m, kept, late)


class BelowLate(ProcessingElement):
    def accumulate(self, m, product, first):
        kept, late, below = Signal(signed(16)), Signal(), Signal(signed(32))
        m.d.sync += [
            kept.eq(product),
            late.eq(first),
            below.eq(self.below),
            self.total.eq(self.total + kept),
        ]
        m.d.sync += self.out.eq(below)
        with m.If(late):
            m.d.sync += [self.total.eq(kept), self.out.eq(self.total)]


class Nothing(ProcessingElement):
    def accumulate(self, m, product, first):
        pass


# 22.4b


def loop(
    combine=max,
    up=lambda count, units: -(-count // units),
    adding=lambda clocks: clocks,
    total=lambda steps, depth, interval: depth + (steps - 1) * interval,
):
    def pipelined_loop(steps, depth, reads, ports, products, multipliers, add_clocks):
        waits = up(reads, ports), up(products, multipliers), adding(add_clocks)
        interval = combine(waits)
        return interval, total(steps, depth, interval)

    return pipelined_loop


def one_after_another(steps, depth, reads, ports, products, multipliers, add_clocks):
    return depth, steps * depth


def by_multipliers(steps, depth, reads, ports, products, multipliers, add_clocks):
    interval = -(-products // multipliers)
    return interval, depth + (steps - 1) * interval


def both_memories(steps, depth, reads, ports, products, multipliers, add_clocks):
    interval = max(-(-2 * reads // ports), -(-products // multipliers), add_clocks)
    return interval, depth + (steps - 1) * interval


def without_the_sums(steps, depth, reads, ports, products, multipliers, add_clocks):
    interval = max(-(-reads // ports), -(-products // multipliers))
    return interval, depth + (steps - 1) * interval


def without_the_last(steps, depth, reads, ports, products, multipliers, add_clocks):
    interval = max(-(-reads // ports), -(-products // multipliers), add_clocks)
    return interval, steps * interval


# 22.5


def sized(
    passes=lambda classes, n: -(-classes // n),
    images=lambda n: n,
    unit=1e6,
    fits=None,
    pick=None,
    fit=operator.le,
):
    def best_size(placed, classes, inputs, luts, multipliers):
        inside = fits or (lambda r: fit(r.luts, luts) and fit(r.multipliers, multipliers))
        rates = {
            n: unit * r.fmax_mhz * images(n) / (inputs * passes(classes, n))
            for n, r in placed.items()
            if inside(r)
        }
        return max(rates.items(), key=pick or (lambda found: found[1])) if rates else None

    return best_size


def no_way_out(placed, classes, inputs, luts, multipliers):
    return sized()(placed, classes, inputs, luts, multipliers) or (0, 0.0)


WRONG = {
    "22.2": [
        (at_once, "Row 1 begins at clock 1", "other-formula"),
        (last_first, "begins at clock", "other-formula"),
        (
            lambda rows: skewed(rows).astype(np.uint8),
            "should get rows",
            "low-precision-is-enough",
        ),
        (lambda rows: abs(skewed(rows)), "should get rows", "other-formula"),
        (one_clock_late, "at clock 0, row 0 should get rows[0, 0]", "off-by-one"),
        (wrapped, "should get 0", "other-formula"),
        (
            right_for_squares,
            "expected 4 clocks of 2 numbers, shape (4, 2), got (3, 2)",
            "right-for-one-case",
        ),
        (lambda rows: skewed(rows).T, "one line a row, not one a clock", "axes-swapped"),
        (lambda rows: rows.T, "When is the last row through", "axes-swapped"),
        (lambda rows: skewed(rows)[:-1], "expected 4 clocks", "off-by-one"),
        (lambda rows: None, "Is there a return", "result-of-another-kind"),
        (
            lambda rows: [list(row) for row in rows] + [[0]],
            "each clock needs 2 numbers",
            "result-of-another-kind",
        ),
        (skewed(np.ones((2, 2), int)), "Expected a function", "result-of-another-kind"),
    ],
    "22.3": [
        (one_scale, "as large as its largest weight needs", "one-scale-fits-all"),
        (by_column, "a scale for each row", "axes-swapped"),
        (rows_scaled(lambda bits: 2 ** (bits - 1)), "128 is beyond 127", "off-by-one"),
        (
            rows_scaled(lambda bits: 2 ** (bits - 1) - 2),
            "as large as its largest weight needs",
            "off-by-one",
        ),
        (rows_scaled(lambda bits: 2**bits - 1), "beyond 127", "other-formula"),
        (rows_scaled(most, torch.trunc), "steps away", "rounding-is-cosmetic"),
        (rows_scaled(most, torch.floor), "steps away", "rounding-is-cosmetic"),
        (rows_scaled(most, lambda x: x), "is not whole", "rounding-is-cosmetic"),
        (rows_scaled(most, size=lambda w: w.amax(dim=1)), "beyond", "other-formula"),
        (
            rows_scaled(most, size=lambda w: 2 * w.abs().amax(dim=1)),
            "2 times as large",
            "one-scale-fits-all",
        ),
        (lambda weights, bits: rows_scaled(most)(weights, 8), "beyond 7", "right-for-one-case"),
        (
            lambda weights, bits: rows_scaled(most)(weights, bits)[::-1],
            "not that of the weights",
            "result-of-another-kind",
        ),
        (
            lambda weights, bits: rows_scaled(most)(weights, bits)[0],
            "expected (whole, scales)",
            "result-of-another-kind",
        ),
    ],
    "22.4": [
        (ProcessingElement, "After clock", "does-less-work"),
        (
            FirstTooEarly,
            "now a clock later, with the product that `first` belongs to",
            "register-anywhere",
        ),
        (
            RegistersBeforeTheProduct,
            "a path still leads through the multiplier and the adder",
            "register-anywhere",
        ),
        (ConnectedAtOnce, "After clock", "register-anywhere"),
        (
            DelayedSum,
            "a path still leads through the multiplier and the adder",
            "register-anywhere",
        ),
        (TooNarrow, "total should be", "low-precision-is-enough"),
        (OneBitTooNarrow, "total should be", "low-precision-is-enough"),
        (SumTooNarrow, "32 for a sum", "low-precision-is-enough"),
        (Unsigned, "total should be", "other-formula"),
        (NeighborsLate, "The neighbor needs it as before", "register-anywhere"),
        (BelowLate, "out takes `below`", "register-anywhere"),
        (Nothing, "After clock", "does-less-work"),
        (ProcessingElement(), "Expected the class of an element", "result-of-another-kind"),
    ],
    "22.4b": [
        (loop(sum), "the slowest decides", "in-turn-or-at-once"),
        (
            loop(up=lambda count, units: max(count // units, 1)),
            "round up",
            "rounding-is-cosmetic",
        ),
        (loop(up=lambda count, units: count / units), "round up", "rounding-is-cosmetic"),
        (both_memories, "Each memory has ports of its own", "other-formula"),
        (without_the_sums, "adds to the same sums", "order-is-free"),
        (by_multipliers, "What holds a step up", "other-formula"),
        (one_after_another, "still under way", "works-in-turns"),
        (without_the_last, "takes its whole depth", "off-by-one"),
        (
            loop(total=lambda steps, depth, interval: depth + steps * interval),
            "steps - 1 have begun",
            "off-by-one",
        ),
        (
            loop(total=lambda steps, depth, interval: steps * depth),
            "still under way",
            "works-in-turns",
        ),
        (lambda *args: 1, "clocks between two steps, clocks in all", "result-of-another-kind"),
        (lambda *args: (1, 67), "clock between two steps", "hard-coded"),
    ],
    "22.5": [
        (sized(pick=lambda found: found[0]), "gives", "bigger-is-better"),
        (
            sized(passes=lambda classes, n: 1),
            "Each group of images enters once for every n classes",
            "other-formula",
        ),
        (
            sized(passes=lambda classes, n: classes / n),
            "1.2x what we expect",
            "rounding-is-cosmetic",
        ),
        (
            sized(passes=lambda classes, n: max(classes // n, 1)),
            "once for every n classes, or part",
            "rounding-is-cosmetic",
        ),
        (sized(unit=1.0), "Fmax is in MHz", "wrong-unit"),
        (sized(images=lambda n: 1), "gives", "what-grows-with-batch"),
        (sized(images=lambda n: n * n), "not n x n", "other-formula"),
        (sized(fits=lambda r: True), "doesn't fit", "it-will-fit"),
        (sized(fit=operator.lt), "8 x 8 gives", "off-by-one"),
        (no_way_out, "the answer is None", "zero-never-happens"),
        (
            lambda *args: sized()(*args)[1] if sized()(*args) else None,
            "expected (n, images a second)",
            "result-of-another-kind",
        ),
        (
            lambda placed, *rest: max(placed.items(), key=lambda found: found[1].fmax_mhz),
            "gives",
            "bigger-is-better",
        ),
    ],
}
