"""What stands beside one notebook's exercises and is tested as labkit is: instruments
by name, and figures.
"""

import importlib

from labkit import plot
from labkit.core.paths import EXERCISES
from labkit.plot.core import Drawing

INSTRUMENTS = {
    "01": ("device_jobs", "published_matmuls"),
    "02": ("workstation",),
    "04": ("gpu_comparison", "kernel_times"),
    "07": ("nsight", "nsight_reports"),
    "08": ("steady_rate",),
    "09": ("formats", "resnet9"),
    "11": ("gradient_noise", "seed_curves", "several_seeds"),
    "12": ("parallel_training", "ring_picture", "ring_race", "verdicts"),
    "14": ("pipelines", "playing", "schedule_editor", "schedule_par", "sliders"),
    "15": ("namespace_hosts", "rank_script"),
    "16": ("course",),
    "22": ("fpga",),
}


def instruments():
    """Name -> module."""
    own = [(n, name) for n, names in INSTRUMENTS.items() for name in names]
    return {name: importlib.import_module(f"exercises.nb{n}.{name}") for n, name in own}


def drawings():
    """Name -> figure function: labkit's, and those of exercises/nbNN/figures.py."""
    folders = [path.parent.name for path in EXERCISES.glob("nb*/figures.py")]
    modules = [
        plot,
        *(importlib.import_module(f"exercises.{folder}.figures") for folder in folders),
    ]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Drawing)
    }
