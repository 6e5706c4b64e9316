"""Solutions of notebook 02, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 02.1
def timed(work, wait, clock):
    """Seconds that work() takes, including everything it queues."""
    wait()  # else earlier work is charged to this one
    start_s = clock()
    work()
    wait()
    return clock() - start_s


# %% 02.5
import statistics


def relative_spread(readings_s):
    """Interquartile range over median: 0.02 means 'repeatable to about 2 %'."""
    low_s, median_s, high_s = statistics.quantiles(readings_s, n=4)
    return (high_s - low_s) / median_s


# %% 02.6
def speedup(share, factor):
    """How many times faster the whole gets when a share of it gets `factor` times faster."""
    return 1 / ((1 - share) + share / factor)


# %% 02.7
import statistics


def benchmark(station, n):
    """Seconds to blur n float32 numbers on the CPU and on the GPU.

    gpu_spread is the relative spread of the GPU's readings. The numbers start in the
    CPU's memory, so the GPU's time includes copying them over. The result stays on the GPU.
    """

    def reading(run):
        x = station.random(n, "float32")  # new for each reading, before the clock starts
        station.synchronize()
        start_s = station.clock()
        run(x)
        station.synchronize()
        return station.clock() - start_s

    def gpu_blur(x):
        station.gpu_blur(station.to_gpu(x))

    reading(station.cpu_blur), reading(gpu_blur)  # the cold calls, forgotten
    cpu_s = [reading(station.cpu_blur) for _ in range(15)]
    gpu_s = [reading(gpu_blur) for _ in range(15)]
    return {
        "cpu_s": statistics.median(cpu_s),
        "gpu_s": statistics.median(gpu_s),
        "gpu_spread": relative_spread(gpu_s),
    }
