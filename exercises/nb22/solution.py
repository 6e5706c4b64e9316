"""Solutions of notebook 22, one block an exercise."""


# %% 22.2
def skewed(rows):
    """What enters at the left: a NumPy array (k + n - 1, n), one line a clock.

    rows is (n, k). Row i enters one number a clock, i clocks later than row 0; else 0 enters.
    """
    n, k = rows.shape
    clocks = np.zeros((k + n - 1, n), int)
    for i in range(n):
        clocks[i : i + k, i] = rows[i]
    return clocks


# %% 22.3
def quantized(weights, bits):
    """(whole, scales) of weights, a torch tensor (classes, inputs), about whole times scales.

    whole: whole numbers up to 2**(bits - 1) - 1 in size. scales: (classes,), as small as fits.
    """
    scales = weights.abs().amax(dim=1) / (2 ** (bits - 1) - 1)
    return (weights / scales[:, None]).round(), scales


# %% 22.4
class Pipelined(ProcessingElement):
    def accumulate(self, m, product, first):
        """As before, a clock later: `Signal(signed(16))` is a register for a product."""
        kept, late = Signal(signed(16)), Signal()
        m.d.sync += [kept.eq(product), late.eq(first)]
        super().accumulate(m, kept, late)


# %% 22.4b
def pipelined_loop(steps, depth, reads, ports, products, multipliers, add_clocks):
    """(clocks from one step's beginning to the next one's, clocks of all steps)."""
    interval = max(-(-reads // ports), -(-products // multipliers), add_clocks)
    return interval, depth + (steps - 1) * interval


# %% 22.5
def best_size(placed, classes, inputs, luts, multipliers):
    """(n, images a second) of the fastest n x n array that fits; None if none does.

    placed: {n: report} with .luts, .multipliers and .fmax_mhz; the chip has `luts` and
    `multipliers`. n images enter together, `inputs` clocks for every n classes or part of n.
    """
    rates = {
        n: 1e6 * report.fmax_mhz * n / (inputs * -(-classes // n))
        for n, report in placed.items()
        if report.luts <= luts and report.multipliers <= multipliers
    }
    return max(rates.items(), key=lambda found: found[1], default=None)
