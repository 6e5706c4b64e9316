"""Plausible wrong answers of notebook 02: number -> (answer, words the check must say)."""

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


def planted(sync=True, warm=True, fresh=True, rng_outside=True, dtype="float32", transfer=True, runs=15, **hard_coded):
    """The right benchmark, less what is switched off; `hard_coded` are values that it returns whatever it measured."""

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
        cpu_s, gpu_s = ([reading(processor) for _ in range(runs)] for processor in ("cpu", "gpu"))
        found = 0.0 if runs < 3 else iqr(gpu_s) / statistics.median(gpu_s)
        result = {"cpu_s": statistics.mean(cpu_s), "gpu_s": statistics.mean(gpu_s), "gpu_spread": found}
        return result | hard_coded

    return benchmark


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
        (never_waits, "not when it was done"),
        (waits_only_before, "not when it was done"),
        (waits_after_the_clock, "not when it was done"),
        (waits_only_after, "earlier work still in its queue"),
        (warms_up_inside, "called 2 times"),
        (lambda work, wait, clock: 1e3 * right(work, wait, clock), "1e+03x"),
        (lambda work, wait, clock: 5e-3, "Use the clock that you are given"),
        (lambda work, wait, clock: -right(work, wait, clock), "Seconds"),
    ],
    "02.5": [
        (iqr, "divide by the median"),
        (lambda r: statistics.stdev(r) / statistics.mean(r), "stray"),
        (lambda r: (max(r) - min(r)) / statistics.median(r), "stray"),
        (lambda r: iqr(r) / 2 / statistics.median(r), "not half of it"),
        (lambda r: 100 * iqr(r) / statistics.median(r), "what we expect"),
        (lambda r: iqr(r) / statistics.mean(r), "divide by the median"),
        (lambda r: 0.27, "what we expect"),
    ],
    "02.6": [
        (lambda share, factor: share * factor, "share="),
        (lambda share, factor: 1 / (share + (1 - share) / factor), "the part that stays"),
        (lambda share, factor: (1 - share) + share / factor, "share="),  # the time, not the speed-up
        (lambda share, factor: 1 / (1 - share), "share="),
        (lambda share, factor: factor / (factor * (1 - share) + share), "factor=inf"),  # NaN at the edge
        (lambda share, factor: 2 / (1 + 1 / factor), "share="),  # right at a half only
    ],
    "02.7": [
        (planted(sync=False), "1 fault remains:\n(1) no synchronisation"),
        (planted(warm=False), "1 fault remains:\n(1) cold call"),
        (planted(fresh=False), "1 fault remains:\n(1) work skipped: the CPU and the GPU"),
        (planted(rng_outside=False), "1 fault remains:\n(1) different work compared: random numbers"),
        (planted(dtype="float64"), "1 fault remains:\n(1) different work compared: not the same numbers"),
        (planted(transfer=False), "1 fault remains:\n(1) transfer left out"),
        (planted(runs=1), "1 fault remains:\n(1) one run and no spread"),
        (planted(gpu_spread=0.1), "1 fault remains:\n(1) one run and no spread: gpu_spread does not follow"),
        (planted(sync=False, transfer=False), "2 faults remain"),
        (as_in_the_stub, "6 faults remain"),
        (planted(gpu_s=0.1), "Even on a workstation without traps the GPU's number is wrong"),
        (in_milliseconds, "1e+03x"),
        (swapped, "on the right processor"),
        (lambda station, n: planted()(station, 1_000_000), "use n"),
        (lambda station, n: {"cpu_s": 1.0, "gpu_s": 0.1, "gpu_spread": 0.1}, "Nothing was blurred on the CPU"),
        (lambda station, n: 12.5, "Expected a dict with the keys cpu_s, gpu_s, gpu_spread"),
    ],
}
