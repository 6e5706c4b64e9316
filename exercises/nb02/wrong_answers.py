"""Plausible wrong answers of notebook 02: number -> (answer, words the check must say, misconception)."""

import statistics


def never_waits(work, wait, clock):
    start = clock()
    work()
    return clock() - start


def waits_only_after(work, wait, clock):
    start = clock()
    work()
    wait()
    return clock() - start


def waits_only_before(work, wait, clock):
    wait()
    start = clock()
    work()
    return clock() - start


def waits_after_the_clock(work, wait, clock):
    wait()
    start = clock()
    work()
    seconds = clock() - start
    wait()
    return seconds


def right(work, wait, clock):
    wait()
    return waits_only_after(work, wait, clock)


def warms_up_inside(work, wait, clock):
    work()
    return right(work, wait, clock)


def iqr(readings):
    low, _, high = statistics.quantiles(readings, n=4)
    return high - low


def planted(
    sync=True,
    warm=True,
    fresh=True,
    rng_outside=True,
    dtype="float32",
    transfer=True,
    runs=15,
    report=None,
    **hard_coded,
):
    """The right benchmark, less what is switched off; `hard_coded` are values that it returns whatever it measured.

    `report` makes other numbers of the CPU's and the GPU's readings.
    """

    def benchmark(station, n):
        wait = station.synchronize if sync else lambda: None
        old = {kind: station.random(n, kind) for kind in ("float32", dtype)}

        def reading(processor):
            kind = dtype if processor == "cpu" else "float32"
            x = station.random(n, kind) if fresh else old[kind]
            there = station.to_gpu(x) if processor == "gpu" and not transfer else None
            wait()
            start = station.clock()
            if not rng_outside:
                x = station.random(n, kind)
            if processor == "cpu":
                station.cpu_blur(x)
            else:
                station.gpu_blur(there or station.to_gpu(x))
            wait()
            return station.clock() - start

        if warm:
            reading("cpu"), reading("gpu")
        cpu_s, gpu_s = (
            [reading(processor) for _ in range(runs)] for processor in ("cpu", "gpu")
        )
        found = 0.0 if runs < 3 else iqr(gpu_s) / statistics.median(gpu_s)
        result = {
            "cpu_s": statistics.mean(cpu_s),
            "gpu_s": statistics.mean(gpu_s),
            "gpu_spread": found,
        }
        return result | (report(cpu_s, gpu_s) if report else {}) | hard_coded

    return benchmark


def reporting(name, number):
    """The right benchmark, with `number` of the CPU's and the GPU's readings in place of one of its results."""
    return planted(report=lambda cpu_s, gpu_s: {name: number(cpu_s, gpu_s)})


def a_sixteenth_reading(station, n):
    x = station.random(n, "float32")
    result = planted()(station, n)
    station.synchronize()
    start = station.clock()
    station.gpu_blur(station.to_gpu(x))
    station.synchronize()
    return result | {"gpu_s": station.clock() - start}


def off_the_judges_log(station, n):
    planted()(station, n)
    cpu_s, gpu_s = (
        [r.seconds + r.transfer_s for r in station.runs if r.processor == p]
        for p in ("cpu", "gpu")
    )
    spread = iqr(gpu_s) / statistics.median(gpu_s)
    return {
        "cpu_s": statistics.median(cpu_s),
        "gpu_s": statistics.median(gpu_s),
        "gpu_spread": spread,
    }


def waits_for_the_clock(station, n):
    while station.clock() < 1.0:
        station.synchronize()


def in_place_iqr_over_mean(readings):
    readings.sort()
    return iqr(readings) / statistics.mean(readings)


def median_distance(readings):
    middle = statistics.median(readings)
    return statistics.median(abs(r - middle) for r in readings) / middle


def over_midhinge(readings):
    low, _, high = statistics.quantiles(readings, n=4)
    return 2 * (high - low) / (high + low)


NO_SPREAD = "1 of 6 faults remains:\n(1) one run and no spread: gpu_spread does not follow"
NO_MIDDLE = "1 of 6 faults remains:\n(1) one run and no spread: the number of the"


def as_in_the_stub(station, n):
    start = station.clock()
    x = station.random(n, "float64")
    station.cpu_blur(x)
    cpu_s = station.clock() - start

    x = station.to_gpu(station.random(n, "float32"))
    start = station.clock()
    for _ in range(100):
        station.gpu_blur(x)
    gpu_s = (station.clock() - start) / 100
    return {"cpu_s": cpu_s, "gpu_s": gpu_s, "gpu_spread": 0.0}


def in_milliseconds(station, n):
    result = planted()(station, n)
    return result | {"cpu_s": 1e3 * result["cpu_s"], "gpu_s": 1e3 * result["gpu_s"]}


def swapped(station, n):
    result = planted()(station, n)
    return result | {"cpu_s": result["gpu_s"], "gpu_s": result["cpu_s"]}


WRONG = {
    "02.1": [
        (never_waits, "not when it was done", "no-synchronize"),
        (waits_only_before, "not when it was done", "no-synchronize"),
        (waits_after_the_clock, "not when it was done", "no-synchronize"),
        (waits_only_after, "earlier work still in its queue", "no-synchronize"),
        (warms_up_inside, "called 2 times", "other-formula"),
        (lambda work, wait, clock: 1e3 * right(work, wait, clock), "1,000x", "wrong-unit"),
        (lambda work, wait, clock: 5e-3, "Read the clock that you are given", "hard-coded"),
        (lambda work, wait, clock: -right(work, wait, clock), "Seconds", "other-formula"),
    ],
    "02.5": [
        (iqr, "divide by the median", "wrong-denominator"),
        (lambda r: statistics.stdev(r) / statistics.mean(r), "stray", "range-is-spread"),
        (lambda r: (max(r) - min(r)) / statistics.median(r), "stray", "range-is-spread"),
        (lambda r: iqr(r) / 2 / statistics.median(r), "not half of it", "other-formula"),
        (lambda r: 100 * iqr(r) / statistics.median(r), "what we expect", "wrong-unit"),
        (lambda r: iqr(r) / statistics.mean(r), "divide by the median", "wrong-denominator"),
        (lambda r: 0.27, "what we expect", "hard-coded"),
        (in_place_iqr_over_mean, "divide by the median", "wrong-denominator"),
        (over_midhinge, "divide by the median", "wrong-denominator"),
        (median_distance, "not half of it", "other-formula"),
        (lambda r: 1.4826 * median_distance(r), "x what we expect", "other-formula"),
        (lambda r: 2 * median_distance(r), "x what we expect", "other-formula"),
    ],
    "02.6": [
        (lambda share, factor: share * factor, "share=", "part-speedup-is-whole"),
        (
            lambda share, factor: 1 / (share + (1 - share) / factor),
            "the part that stays",
            "upside-down",
        ),
        (
            lambda share, factor: (1 - share) + share / factor,
            "share=",
            "upside-down",
        ),  # the time, not the speed-up
        (lambda share, factor: 1 / (1 - share), "share=", "other-formula"),
        (
            lambda share, factor: factor / (factor * (1 - share) + share),
            "infinity / infinity",
            "zero-never-happens",
        ),
        (
            lambda share, factor: 2 / (1 + 1 / factor),
            "share=",
            "right-for-one-case",
        ),  # right at a half only
    ],
    "02.7": [
        (
            planted(sync=False),
            "1 of 6 faults remains:\n(1) no synchronization",
            "no-synchronize",
        ),
        (planted(warm=False), "1 of 6 faults remains:\n(1) cold call", "few-readings-decide"),
        (
            planted(fresh=False),
            "1 of 6 faults remains:\n(1) work skipped: the CPU and the GPU",
            "unequal-comparison",
        ),
        (
            planted(rng_outside=False),
            "1 of 6 faults remains:\n(1) different work compared: random numbers",
            "unequal-comparison",
        ),
        (
            planted(dtype="float64"),
            "1 of 6 faults remains:\n(1) different work compared: not the same numbers",
            "unequal-comparison",
        ),
        (
            planted(transfer=False),
            "1 of 6 faults remains:\n(1) transfer left out",
            "unequal-comparison",
        ),
        (
            planted(runs=1),
            "1 of 6 faults remains:\n(1) one run and no spread",
            "few-readings-decide",
        ),
        (
            planted(gpu_spread=0.1),
            "1 of 6 faults remains:\n(1) one run and no spread: gpu_spread does not follow",
            "hard-coded",
        ),
        (
            reporting("gpu_spread", lambda c, g: iqr(c) / statistics.median(c)),
            NO_SPREAD,
            "other-formula",
        ),  # the CPU's
        (
            reporting("gpu_spread", lambda c, g: (max(g) - min(g)) / statistics.median(g)),
            NO_SPREAD,
            "range-is-spread",
        ),
        (
            reporting("gpu_spread", lambda c, g: 5 * iqr(g) / statistics.median(g)),
            NO_SPREAD,
            "other-formula",
        ),
        (reporting("gpu_s", lambda c, g: g[0]), NO_MIDDLE + " GPU", "few-readings-decide"),
        (reporting("gpu_s", lambda c, g: g[-1]), NO_MIDDLE + " GPU", "few-readings-decide"),
        (reporting("gpu_s", lambda c, g: max(g)), NO_MIDDLE + " GPU", "few-readings-decide"),
        (reporting("gpu_s", lambda c, g: min(g)), NO_MIDDLE + " GPU", "few-readings-decide"),
        (reporting("cpu_s", lambda c, g: c[0]), NO_MIDDLE + " CPU", "few-readings-decide"),
        (reporting("cpu_s", lambda c, g: min(c)), NO_MIDDLE + " CPU", "few-readings-decide"),
        (a_sixteenth_reading, NO_MIDDLE + " GPU", "few-readings-decide"),
        (off_the_judges_log, "has no attribute 'runs'", "goes-round-the-tool"),
        (
            waits_for_the_clock,
            "The clock has not moved in 1,000,000 readings",
            "attacks-the-check",
        ),
        (planted(sync=False, transfer=False), "2 of 6 faults remain:", "no-synchronize"),
        (as_in_the_stub, "6 of 6 faults remain:", "other-formula"),
        (
            planted(gpu_s=0.1),
            "Even on a workstation without traps the GPU's number is wrong",
            "hard-coded",
        ),
        (in_milliseconds, "1,000x", "wrong-unit"),
        (swapped, "on the right processor", "other-formula"),
        (lambda station, n: planted()(station, 1_000_000), "use n", "right-for-one-case"),
        (lambda station, n: "x" * 10**6, "got 'xxx", "result-of-another-kind"),
        (
            lambda station, n: {"cpu_s": 1.0, "gpu_s": 0.1, "gpu_spread": 0.1},
            "Nothing was blurred on the CPU",
            "hard-coded",
        ),
        (
            lambda station, n: 12.5,
            "Expected a dict with the keys cpu_s, gpu_s, gpu_spread",
            "result-of-another-kind",
        ),
    ],
}
