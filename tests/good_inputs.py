"""Good values for the parameters of public functions, and which functions tests/bad_inputs.py doesn't call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import cuda

import labkit as lab
import steptime
from exercises.nb01 import device_jobs
from exercises.nb02 import workstation
from exercises.nb09 import formats
from exercises.nb15 import namespace_hosts
from labkit.lesson import outcomes
from ranks import Span
from steptime.allocations import CATEGORIES
from tests.good_figures import figures

_device = functools.partial(lab.catalog.find, "A100 SXM4 80GB")
_model = functools.partial(lab.cluster.model, "GPT 1.7B")


def _cluster() -> Any:
    return lab.cluster.Cluster("A100 SXM4 80GB", 8)


def _timing() -> Any:
    return lab.Timing("one", 1.0, (1.0, 1.1, 1.2, 1.0, 1.1))


def _job() -> Any:
    return device_jobs.Job(memory_bytes=1e9, flop=1e12, n_bytes=1e9, dtype="float32")


def _ceilings() -> Any:
    from labkit.measure.ceilings import Ceilings
    from labkit.measure.probe import Ceiling

    ceiling = Ceiling(1e11, 1e11, 1e11, "FLOP/s", "512", 512, 5)
    return Ceilings("cpu", 1, ceiling, {"float32": ceiling}, (), {}, {}, {}, "now")


def _training_data() -> Any:
    return torch.rand(64, 1, 8, 8), torch.randint(0, 10, (64,))


# by "function.parameter", by parameter, or by annotation
EXAMPLES: dict[str, Callable[[], Any]] = {
    # by annotation
    "int": lambda: 4,
    "float": lambda: 2.0,
    "str": lambda: "text",
    "bool": lambda: True,
    "Path": lambda: Path("file.txt"),
    "Transformer": _model,
    "Cluster": _cluster,
    "Layout": lambda: lab.cluster.Layout(8),
    "Step": lambda: lab.cluster.step(_model(), _cluster(), lab.cluster.Layout(8), 8),
    "Device": _device,
    "Job": _job,
    "Link": lambda: lab.costs.Link(1e-6, 1e9),
    "Runs": lambda: _runs(),
    "Timing": _timing,
    "Tensor": lambda: torch.rand(2, 3, 8, 8),
    "Module": lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)),
    "collections.abc.Callable[[], object]": lambda: lambda: None,
    # by parameter
    "dtype": lambda: "float32",
    "device": lambda: "A100 SXM4 80GB",
    "n_bytes": lambda: 1e6,
    "sides": lambda: [4, 4],
    "optimizer": lambda: "adam",
    "key": lambda: "00.1 a name",
    "claim": lambda: "C01",
    # by function and parameter
    "device_jobs.judge.device": _device,
    "device_jobs.shortlist_table.candidates": lambda: device_jobs.shortlist(_job()),
    "catalog.find.name": lambda: "A100 SXM4 80GB",
    "cluster.model.name": lambda: "GPT 1.7B",
    "cluster.published_steps.name": lambda: "megatron",
    "cluster.Transformer.hidden": lambda: 64,
    "compare.alternatives": lambda: {"a": lambda: None, "b": lambda: None},
    "compare.budget_s": lambda: 0.0,
    "time_call.budget_s": lambda: 0.0,
    "costs.conv2d.size": lambda: 16,
    "costs.fit_link.n_bytes": lambda: [1e3, 1e6, 1e8],
    "costs.fit_link.seconds": lambda: [1e-5, 1e-3, 1e-1],
    "costs.network.name": lambda: "BERT-base",
    "costs.training_step.model": lambda: "BERT-base",
    "float32_precision.precision": lambda: "ieee",
    "Table.rows": lambda: (("a", "b"),),
    "Timing.samples_s": lambda: (1.0, 2.0),
    "profiling.utilization.ceilings": _ceilings,
    "profiling.utilization.seconds": lambda: 1.0,
    "steptime.utilization.ceilings": lambda: steptime.Ceilings("cpu", {"float32": 1e11}, 1e11, 1),
    "profiling.MemoryTimeline.against.predicted": lambda: lab.costs.training_memory(4, 4),
    "profiling.part.name": lambda: "forward",
    "nsight.as_script.work": lambda: _work,
    "nsight.as_script.path": lambda: "script.py",
    "nsight.nsys_command.script": lambda: "script.py",
    "nsight.nsys_stats_command.script": lambda: "script.py",
    "nsight.ncu_command.script": lambda: "script.py",
    "profiling.step_overhead.step_of": lambda: lambda n: _work,
    "profiling.step_overhead.small": lambda: 1,
    "profiling.step_overhead.large": lambda: 2,
    "profiling.saved_activation_bytes.layer": lambda: torch.nn.Linear(3, 3),
    "profiling.saved_activation_bytes.inputs": lambda: [torch.rand(2, 3)],
    "published.table.name": lambda: "memcpy_bandwidth",
    "published.cited.section": lambda: "04.6",
    "published.ratios.section": lambda: "09.6",
    "published.citations.numbers": lambda: lab.published.cited("04.6"),
    "published.bus.gpu": lambda: "H200",
    "published.bus.link": lambda: "PCIe 5 x16",
    "cluster.step.batch": lambda: 8,
    "cluster.held_against.batch": lambda: 8,
    "schedule.overlap.backward_s": lambda: [1.0, 1.0],
    "schedule.overlap.n_bytes": lambda: [1e6, 1e6],
    "schedule.simulate.schedule": lambda: [["F0", "B0"], ["F0", "B0"]],
    "fpga.recorded.kind": lambda: "plain",
    "fpga.skewed.rows": lambda: np.ones((2, 3), int),
    "workstation.Workstation.to_gpu.x": lambda: workstation.Workstation().random(4, "float32"),
    "workstation.Workstation.cpu_blur.x": lambda: workstation.Workstation().random(4, "float32"),
    "workstation.Workstation.gpu_blur.x": lambda: workstation.Numbers(4, "float32", "gpu", object()),
    "profiling.Limit.bound.limit": lambda: "text",
    "profiling.Limit.words.limit": lambda: "text",
    "profiling.StepProfile.share.part": lambda: "forward",
    "summary.notebook": lambda: "00",
    "predict.guess": lambda: 2.0,
    "threads.n": lambda: 1,
    "verdict.evidence": lambda: None,
    "verdict.section": lambda: "00.1",
    "record.origin": lambda: "measured",
    "record.value": lambda: 2.0,
    "hint.number": lambda: "00.1",
    "solution.number": lambda: "00.1",
    "cards.notebook": lambda: "04",
    "check.number": lambda: "00.1",
}

EXAMPLES |= {
    "Explorer.draw": lambda: lambda axes: "A sentence.",
    "seed_curves.SeedCurves.x": lambda: "epochs",
    "seed_curves.SeedCurves.accuracy": lambda: 0.9,
    "SpeedBoard.section": lambda: "00.1",
    "class_files.read_class.paths": lambda: [Path("results.jsonl")],
    "SpeedBoard.unit": lambda: "s",
    "SpeedBoard.size": lambda: "",
    "SpeedBoard.expect.calculated": lambda: {"H200, at most": 1.0},
    "compile_cuda.source": lambda: 'extern "C" __global__ void f(float *x) { x[0] = 1; }',
    "occupancy.block": lambda: 256,
    "occupancy.registers": lambda: 32,
    "occupancy.compute_capability": lambda: (8, 0),
    "compute_capability": lambda: (8, 0),
    "data.digits.split": lambda: "train",
    "data.loader.dataset": lambda: torch.utils.data.TensorDataset(torch.rand(16, 4)),
    "data.loader.num_workers": lambda: 0,
    "steady_rate.steady_batch_s.times": lambda: [lab.data.BatchTimes(0, i, i + 0.5, i, i + 0.6) for i in range(40)],
    "formats.Format.bits.x": lambda: 2.0,
    "formats.Format.value.bits": lambda: "0" * 16,
    "formats.Format.shares.values": lambda: [1.0, 2.0],
    "formats.autocast_forward.x": lambda: torch.rand(2, 64),
    "formats.autocast_forward.dtype": lambda: torch.bfloat16,
    "formats.round_weights.to": lambda: torch.bfloat16,
    "formats.round_weights.optimizer": lambda: _made()[1],
    "Optimizer": lambda: torch.optim.SGD([torch.nn.Parameter(torch.rand(3))], lr=0.1),
    "models.SmallGPT.width": lambda: 16,
    "training.accuracy.model": torch.nn.Flatten,
    "training.accuracy.images": lambda: torch.zeros(8, 1, 2, 2),
    "training.accuracy.labels": lambda: torch.zeros(8, dtype=torch.int64),
    "gradient_noise.gradient_noise.images": lambda: _training_data()[0],
    "gradient_noise.gradient_noise.labels": lambda: _training_data()[1],
    "gradient_noise.gradient_noise.draws": lambda: 2,
    "training.held_out.images": lambda: _training_data()[0],
    "training.held_out.labels": lambda: _training_data()[1],
    "gradient_noise.noise_scale.big": lambda: 64,
    "training.fit.setup": lambda: _setup,
    "training.fit.seed": lambda: 0,
    "training.fit.epochs": lambda: 1,
    "training.fit.data": _training_data,
    "training.fit.validation": _training_data,
    "training.compare_tuned.arms": lambda: {"a": _learn, "b": _learn},
    "training.compare_tuned.rates": lambda: [0.1],
    "training.compare_tuned.seeds": lambda: 2,
    "training.sweep_rates.arm": lambda: _learn,
    "training.sweep_rates.rates": lambda: [0.1],
    "training.TunedComparison.gain.label": lambda: "b",
    "training.TunedComparison.gain.baseline": lambda: "a",
    "accuracy": lambda: 0.9,
    "check.answer": lambda: 3,
}
EXAMPLES |= {
    "labkit.Outcome.draw.picture": lambda: lambda: None,
    "namespace_hosts.Hosts.launch.fn": lambda: _work_on,
    "dist.all_reduce_seconds.sizes": lambda: [4, 4096],
    "rank_script.as_script.fn": lambda: _work_on,
    "rank_script.as_script.folder": lambda: "script",
    "parallel_training.backward_by_buckets.backward_s": lambda: [0.1, 0.1],
    "parallel_training.backward_by_buckets.n_bytes": lambda: [4, 4],
    "dist.interleaved.ways": lambda: {"one": lambda: None},
    "pipelines.idle_share.spans": lambda: [Span(0, 0.0, 1.0, "F", "0")],
    "pipelines.stage_spans.spans": lambda: [Span(0, 0.0, 1.0, "F", "0")],
    "pipelines.PipelineStep.stages": lambda: [_stage()],
    "pipelines.timed.stages": lambda: [_stage()],
    "pipelines.StandInPart.backward_s": lambda: 4.0,
    "dist.span.kind": lambda: "compute",
    "namespace_hosts.two_hosts.rate_bits_per_s": lambda: 1e9,
    "schedule": lambda: None,
    "StandIn.compute.kind": lambda: "compute",
    "dist.launch.fn": lambda: _work,
}
EXAMPLES |= {
    "kerneltrace.Trace.busiest.array": lambda: "x",
    "kerneltrace.Trace.writers.array": lambda: "x",
    "kerneltrace.Review.of.kind": lambda: "atomics",
    "labkit.Comparison.ratio.label": lambda: "b",
    "labkit.Ratio.times.factor": lambda: 2.0,
    "trainplan.Network.layer_costs.batch": lambda: _network().batch(8),
    "trainplan.Network.cost.batch": lambda: _network().batch(8),
    "trainplan.Network.training_flop.batch": lambda: _network().batch(8),
}
_FIGURES = figures()
EXAMPLES |= {
    f"plot.{name}.{key}": lambda value=value: value for name, given in _FIGURES.items() for key, value in given.items()
}
EXAMPLES |= {"plot.to_png.ax": lab.plot.new_axes, "plot.Bar.name": lambda: "one", "plot.Picture.ax": lab.plot.new_axes}

# an instance whose methods are called, by its class
INSTANCES: dict[str, Callable[[], Any]] = {
    "Timing": _timing,
    "Cluster": _cluster,
    "Layout": EXAMPLES["Layout"],
    "Step": EXAMPLES["Step"],
    "MemoryTimeline": lambda: lab.profiling.MemoryTimeline("cpu", (0.0,), dict.fromkeys(CATEGORIES, (1,)), (), "op"),
    "StepProfile": lambda: lab.profiling.StepProfile(
        "cpu", 1, (1.0,), {"forward": 1.0}, (), (), {}, Path("trace.json")
    ),
    "StepOverhead": lambda: lab.profiling.StepOverhead(1, 2, 1e-3, 2e-3),
    "Limit": lambda: lab.profiling.Limit({"text": 0.5, "input": 0.5}, (), 1.0),
    "SimulatedDevice": lambda: lab.simulated.SimulatedDevice(),
    "TrainingJob": lambda: _prepared(),
    "Workstation": lambda: workstation.Workstation(),
    "SpeedBoard": lambda: lab.SpeedBoard("00.1", "title"),
    "Format": lambda: formats.float16,
    "Picture": lambda: lab.plot.Picture(lab.plot.new_axes(), "a sentence"),
    "Outcome": lambda: outcomes.Outcome("00.1", "passed", "Right."),
    "Hosts": lambda: namespace_hosts.Hosts(("a", "b"), Path.cwd()),
    "StandIn": lambda: lab.StandIn(1e30),
    "Run": lambda: _runs().runs[0],
    "Runs": lambda: _runs(),
    "Trace": lambda: _trace(),  # type: ignore[has-type]
    "Review": lambda: _trace().review(),  # type: ignore[has-type]
    "Compiled": lambda: lab.compile_cuda(EXAMPLES["compile_cuda.source"]()),
    "Comparison": lambda: lab.compare({"a": lambda: None, "b": lambda: None}, budget_s=0.0),
    "Ratio": lambda: INSTANCES["Comparison"]().ratio("b"),
    "Network": lambda: _network(),
    "TunedComparison": lambda: lab.training.compare_tuned({"a": _learn, "b": _learn}, [0.1]),
}

# parameters for which NaN and inf, or negative numbers, are no mistake
NAN_IS_FINE = {"units.significant.value", "units.format_seconds.seconds", "units.format_bytes.n_bytes"}
NAN_IS_FINE |= {"units.format_si.value", "units.format_quantity.value"}
NEGATIVE_IS_FINE = NAN_IS_FINE | {"seed"}
# single values that are right for a parameter, by "function.parameter" or parameter
NAN_IS_FINE |= {"dist.report.metrics"}  # of a training run that diverges
NEGATIVE_IS_FINE |= {"dist.report.metrics"}
NAN_IS_FINE |= {"plot.bits.value", "formats.Format.bits.x"}  # they have bits, too
NEGATIVE_IS_FINE |= {"plot.bits.value", "formats.Format.bits.x", "record.value"}
ONE_IS_FINE: dict[str, tuple[str, ...]] = {"bus_bytes_per_s": ("inf",), "cluster.Layout.zero": ("0",)}

# classes that readers get and don't make: their methods are called, their constructors are not
RESULTS = {
    "device_jobs.Candidate",
    "cluster.Bill",
    "cluster.Goodput",
    "cluster.Step",
    "costs.TrainingMemory",
    "costs.TrainingStep",
    "course.Claim",
    "course.Claims",
    "class_files.Reader",
    "plot.Picture",
    "data.BatchTimes",
    "namespace_hosts.HostCommand",
    "namespace_hosts.Hosts",
    "parallel_training.Backward",
    "workstation.Blur",
    "workstation.Numbers",
    "dist.Launched",
    "dist.Report",
    "pipelines.Steps",
    "profiling.Limit",
    "profiling.MemoryTimeline",
    "profiling.PartSpan",
    "profiling.StepOverhead",
    "profiling.StepProfile",
    "profiling.Utilization",
    "published.Bus",
    "published.Cited",
    "published_matmuls.PublishedMatmul",
    "schedule.Overlap",
    "schedule.Timetable",
    "simulated.Blur",
    "simulated.Event",
    "simulated.Numbers",
    "steptime.Ceilings",
    "steptime.Gain",
    "gradient_noise.GradientNoise",
    "training.AccuracyGain",
    "training.RateSweep",
    "training.Run",
    "several_seeds.Reached",
    "several_seeds.Runs",
    "training.TunedComparison",
}

# by room: what its functions call to start a process, to write a file, to measure for seconds, or to meet other ranks
STARTS: dict[str, tuple[str, ...]] = {
    "steptime": ("steptime.mfu.measure_ceilings",),
    "measure": (
        "labkit.measure.profiling.measure_ceilings",
        "ranks.launcher.agent.start_fork_server",
        "labkit.measure.dist.group_sync",
        "subprocess.Popen",
    ),
    "ranks": ("ranks.launcher.agent.start_fork_server", "subprocess.Popen"),
    "exercises": (
        "ranks.launcher.agent.start_fork_server",
        "exercises.nb14.pipelines.group_sync",
        "exercises.nb15.namespace_hosts._check_possible",
        "exercises.nb15.rank_script.writing",
        "subprocess.Popen",
    ),
}

# functions that aren't called, each with the reason; a room stands for all that is in it
NOT_WALKED: dict[str, str] = {
    "gpu_comparison.time_on_gpu": "needs a GPU",
    "gpu_comparison.ready": "needs a GPU",
    "trace": "takes what its kernel takes: tests/test_kerneltrace/test_trace_refusals.py",
    "Stepper": "takes what its kernel takes: tests/test_lesson/test_stepper.py",
    "kerneltrace.Stepper": "the same",
    "schedule_editor.ScheduleEditor": "takes what `schedule.simulate` takes, which is called",
    "data.Prepare.augment": "handles one image of a loader",
    "data.Prepare.decode": "handles one image of a loader",
    "data.Prepare.finish": "handles one image of a loader",
    "formats.Format.round": "takes anything that NumPy takes",
    "Curves.draw": "draws on the board's axes",
    "Explorer.draw": "draws on the board's axes",
    "Curves.add": "takes names of the caller's choice: tests/test_lesson/test_boards.py",
    "seed_curves.SeedCurves.draw": "draws on the board's axes",
    "schedule_editor.ScheduleEditor.draw": "draws on the editor's axes",
    "SpeedBoard.draw": "draws on the board's axes",
    "seed_curves.SeedCurves.train": "trains",
    "SpeedBoard.time": "measures; `time_call` is called",
    "SpeedBoard.compare": "measures; `compare` is called",
    "data.JpegFiles": "reads files that the notebooks make",
    "data.JpegShards": "reads files that the notebooks make",
    "data.jpeg_files": "reads files that the notebooks make",
    "data.jpeg_shards": "writes files of many megabytes",
    "data.decoded_cache": "reads files that the notebooks make",
    "data.read_encoded": "reads files that the notebooks make",
    "fpga.place": "runs for a minute",
    "rank_script.filled": "takes the name of a file of exercises/nb15/jobs and all of its marks",
    "namespace_hosts.end_all": "takes a network namespace that two_hosts has made",
    "class_files.shown": "takes anything",
    "teaching.Reader.last": "the same as class_files.Reader.last",
    "class_files.within": "takes the parts of a page",
    "class_files.Reader.last": "takes a type of labkit's own",
    "pool.add_arguments": "takes argparse's parser",
    "pool.run": "takes argparse's result",
    "pool.as_page": "takes what `class_files.read_class` makes, which is called",
    "pool.write_page": "writes a file; `class_files.read_class` is called",
    "graphs": "compiles",
    "resnet9.ResNet9.forward": "is traced by torch.compile, which a door would break",
    "models.SimpleCNN.forward": "is traced by torch.compile, which a door would break",
    "models.SmallGPT.forward": "is traced by torch.compile, which a door would break",
    "several_seeds.Runs.faster_than": "needs four seeds on each side",
    "several_seeds.interleaved": "trains; `fit` is called",
    "training.RateSweep.middle": "takes one of its own rates",
    "labkit.RateSweep.middle": "the same",
    "measure_ceilings": "takes seconds a call",
    "pipelines.OwnSchedule": "torch's class, which needs a process group",
    "pipelines.WatchedStage": "torch's class, whose methods its schedules call",
    "pipelines.StandInPart.forward": "torch calls it, with tensors without values too",
    "diagnose": "takes seconds a call",
    "profiling.find_bottleneck": "takes seconds a call",
    "peak_memory": "runs torch's profiler",
    "plot.drop_pixels": "takes a live board's axes",
    "pick": "takes anything",
    "profiling.memory_timeline": "runs torch's profiler",
    "profiling.profile_step": "runs torch's profiler",
    "steptime.diagnose": "takes seconds a call",
    "steptime.find_bottleneck": "takes seconds a call",
    "steptime.unchanged": "takes functions and objects of every kind",
    "steptime.watch": "takes a loader of every kind",
    "steptime.measure_ceilings": "takes seconds a call",
    "steptime.memory_timeline": "runs torch's profiler",
    "steptime.profile_step": "runs torch's profiler",
    "errors.nearest": "labkit's own helper; `errors` is there for its classes",
}


def _runs() -> Any:
    return figures()["time_to_accuracy"]["named"]["text"][10]


def _kernel(x):
    x[cuda.grid(1)] = 1


@functools.cache
def _trace() -> Any:
    """Of a kernel with a branch, a loop and two warps."""
    return lab.trace(_branches, 2, 32, np.ones(64, np.float32))


def _branches(x):
    i = cuda.grid(1)
    if i % 2:
        for k in range(2):
            x[i] += k


def _network() -> Any:
    return lab.costs.network("BERT-base")


def _made() -> Any:
    model = EXAMPLES["Module"]()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _learn(rate: float, seed: int) -> float:
    return 0.9


def _setup() -> Any:
    model, optimizer = _made()

    def step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def _stage() -> Any:
    from exercises.nb14.pipelines import WatchedStage

    stage = object.__new__(WatchedStage)
    stage.device, stage.stage_index, stage.num_stages = torch.device("cpu"), 0, 1
    return stage


def _work() -> None:
    pass


def _work_on(value: object = None) -> None:
    pass


def _prepared() -> Any:
    job = lab.simulated.TrainingJob(prepare_s=1.0, step_s=1.0)
    for _ in range(5):
        job.prepare()
    return job
