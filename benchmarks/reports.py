"""Record what Nsight Systems and Nsight Compute say of a training step of SimpleCNN, for readers without a GPU.

usage, in the repository's folder, on a machine with a CUDA GPU and nsys, ncu or both:
    python -m benchmarks.reports    writes data/recorded/<machine>-nsys.csv and -ncu.csv
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from labkit.core.errors import LabError
from labkit.core.paths import RECORDED
from labkit.measure import profiling
from labkit.measure.machine import machine
from labkit.measure.profiling import Command

LAUNCHES = 25  # kernels that ncu measures: each is repeated a few times


def training_step() -> None:
    """One step of training, with everything that it needs."""
    import torch

    import labkit as lab

    model = lab.models.SimpleCNN().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = (part.to("cuda") for part in lab.data.digits(size=32, channels=3))
    with lab.profiling.part("forward"):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    with lab.profiling.part("backward"):
        loss.backward()  # type: ignore[no-untyped-call]
    with lab.profiling.part("optimizer"):
        optimizer.step()


def recorded(tool: str, commands: list[Command], result: Path) -> str:
    """Run a tool's commands, keep its table, and say what came of it."""
    if shutil.which(tool) is None:
        return f"{tool} is not installed: its report was not recorded."
    for command in commands:
        done = subprocess.run(command.parts, env=os.environ, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            return f"{command} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}"
    try:
        profiling.read_report(result)
    except LabError as error:
        return f"{tool}: {error}"
    target = RECORDED / f"{machine().slug}-{tool}.csv"
    shutil.copy(result, target)
    return f"{tool}: {target}"


def main() -> None:
    """Record both reports; without a GPU, say so."""
    if not machine().gpus:
        print("A report needs a CUDA GPU, and torch finds none: nothing was recorded.")
        return
    with tempfile.TemporaryDirectory() as folder:
        script = profiling.as_script(training_step, Path(folder) / "step.py")
        stats = profiling.nsys_stats_command(script)
        nsys = [profiling.nsys_command(script), stats]
        print(recorded("nsys", nsys, script.with_name("step_cuda_gpu_kern_sum.csv")))
        print(recorded("ncu", [profiling.ncu_command(script, launches=LAUNCHES)], script.with_name("step-ncu.csv")))


if __name__ == "__main__":
    main()
