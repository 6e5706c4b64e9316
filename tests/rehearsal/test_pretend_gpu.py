"""The pretend GPU behaves as torch's own does where the notebooks rely on it, and marks
every number as simulated.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from labkit.core.paths import ROOT, SOURCES
from tests.needs import needs
from tests.rehearsal import CARDS, environment

pytestmark = [
    pytest.mark.nightly,  # each test starts torch anew, and builds with g++
    needs("g++"),
    pytest.mark.skipif(sys.platform != "linux", reason="the pretend GPU needs Linux"),
    pytest.mark.skipif(
        torch.version.cuda is not None,
        reason="needs the CPU build of torch, whose CUDA it fills in",
    ),
]


def rehearse(code, home, **options):
    """What a process with a pretend GPU prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(
        command,
        env=environment(home, **options),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def refused(statement, words):
    """Python that runs a statement and fails unless it is refused in these words."""
    tried = (
        f"try:\n    {statement}\nexcept Exception as error:\n    assert {words!r} in"
        " str(error), error\n"
    )
    return tried + "else:\n    raise SystemExit('not refused')\n"


def test_torch_behaves_as_on_a_gpu(tmp_path):
    code = """
        import torch, warnings
        x = torch.ones(1000, device="cuda")
        assert (str(x.device), x.sum().item()) == ("cuda:0", 1000)
        assert torch.cuda.memory_allocated() == 4096 and torch.cuda.get_device_capability() == (7, 5)
        del x
        assert torch.cuda.memory_allocated() == 0 < torch.cuda.max_memory_allocated()
        side, begin, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() == side
            begin.record(), end.record()
        torch.cuda.current_stream().wait_stream(side)
        assert torch.cuda.current_stream() == torch.cuda.default_stream() != side and begin.elapsed_time(end) >= 0
        with torch.autocast("cuda", dtype=torch.float16):
            product = torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
        assert product.dtype == torch.float16
        model = torch.nn.Linear(4, 2, device="cuda")
        scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(model.parameters(), 0.1)
        scaler.scale(model(torch.ones(3, 4, device="cuda")).sum()).backward()
        scaler.step(optimizer), scaler.update()
        given, result, graph = torch.ones(2, device="cuda"), torch.zeros(2, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result.copy_(3 * given + given.sum())
        given.fill_(5)
        graph.replay()
        assert result.tolist() == [25, 25]
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result.sum()
            assert not caught
            result.sum().item()
            assert "synchronizing" in str(caught[0].message)
    """
    broken = "with torch.cuda.graph(torch.cuda.CUDAGraph()): result.sum().item()"
    refusals = (
        ("result + torch.ones(2)", "found at least two devices, cuda:0 and cpu"),
        ("torch.randn(2, device='cuda', generator=torch.Generator())", "generator"),
        ("torch.empty(2**40, device='cuda')", "CUDA out of memory. Tried to allocate"),
        ("torch.ones(1, device='cuda:1')", "invalid device ordinal"),
        (broken, "not permitted when stream is capturing"),
    )
    rehearse(
        textwrap.dedent(code) + "".join(refused(*each) for each in refusals), tmp_path
    )


def test_what_fails_on_a_gpu_alone_fails_here(tmp_path):
    code = """
        import os, torch
        from torch.nn.functional import ScalingType, scaled_mm
        weight = torch.ones(2, device="cuda", requires_grad=True)
        (2 * weight).sum().backward()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.optim.Adam([weight], capturable=True).step()
        one, eight = ScalingType.TensorWise, torch.ones(32, 32, device="cuda").to(torch.float8_e4m3fn)
        scale = torch.ones((), device="cuda")
        product = lambda a, b: scaled_mm(a, b, scale, one, scale, one, output_dtype=torch.bfloat16)
        if torch.cuda.get_device_capability() >= (8, 9):
            assert product(eight, eight.T).sum().item() == 32**3
        child = os.fork()
        if child == 0:
            try:
                torch.ones(2, device="cuda")
            except RuntimeError as error:
                os._exit("Cannot re-initialize CUDA in forked subprocess" not in str(error))
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    """
    refusals = {
        "torch.cuda.set_device(1)": "invalid device ordinal",
        "torch.cuda.memory._record_memory_history()": (
            "record_context_cpp is not supported"
        ),
    }
    newer = {
        "product(eight, eight)": "row-major and column-major",
        "product(eight[:, :8], eight[:, :8].T)": "divisible by",
    }
    older = {"product(eight, eight.T)": "compute capability >= 9.0 or 8.9"}
    for card, more in {"T4": older, "8GB": newer}.items():
        tried = "".join(refused(*each) for each in (refusals | more).items())
        rehearse(textwrap.dedent(code) + tried, tmp_path, card=card)


def test_every_number_is_simulated_and_nothing_but_the_environment_switches_it_on(
    tmp_path,
):
    code = """
        import labkit as lab
        board = lab.SpeedBoard("00.3", "A board", size="two numbers", dtype="float32")
        board.time("measured here", lambda: None, budget_s=0.01)
        lab.record("00.3 more", 2.0, "x", origin="calculated")
        lab.verdict("C02", True, section="00.3", because="of that")
    """
    rehearse(code, tmp_path)
    entries = [
        json.loads(line)
        for line in (tmp_path / "results.jsonl").read_text().splitlines()
    ]
    assert len(entries) == 3
    assert {entry.get("origin", "simulated") for entry in entries} == {"simulated"}
    assert {entry["machine"] for entry in entries} == {"rehearsal of Tesla T4"}
    paths = [path for folder in SOURCES.values() for path in folder.rglob("*.py")]
    assert not [
        path for path in paths if "rehears" in path.read_text(encoding="utf-8").lower()
    ]


def test_the_fast_kernels_run_and_match_torch(tmp_path):
    code = """
        import torch
        from benchmarks import array_kernels as kernels
        from exercises.nb05 import fast_matmul
        x, y, a, b = (torch.randn(shape, device="cuda") for shape in (9001, 9001, (70, 130), (130, 50)))
        expected, copied = 2 * x + y, torch.empty_like(x)
        kernels.saxpy(2.0, x, y), kernels.copy(x, copied)
        torch.testing.assert_close((y, copied), (expected, x))
        torch.testing.assert_close((fast_matmul.matmul(a, b), kernels.transpose(a)), (a @ b, a.T), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(kernels.reduce_sum(x), x.sum(), rtol=1e-4, atol=1e-3)
    """
    rehearse(
        textwrap.dedent(code)
        + refused("kernels.copy(x.cpu(), copied)", "Expected x on a CUDA GPU"),
        tmp_path,
    )


def test_what_is_missing_is_said_in_a_sentence(tmp_path):
    code = """
        import torch
        from exercises.nb04.gpu_comparison import time_on_gpu
        from benchmarks import array_kernels as kernels
        from labkit.train import graphs
        from numba import cuda
        assert graphs.missing() == "Triton"
        x = torch.ones(4, device="cuda")
        kernel = cuda.jit(lambda x: None)
        assert time_on_gpu("03.9", "A race", {"a": (kernel, 1, 32, (4,))}, estimates={}, size="4 numbers") is None
    """
    code = textwrap.dedent(code) + refused(
        "kernels.copy(x, x.clone())", "The kernels need CuPy"
    )
    rehearse(code, tmp_path, without="cupy,triton,numba")


def test_work_that_is_not_waited_for_is_missing_in_a_reading_which_is_refused(tmp_path):
    code = """
        import time, torch
        import labkit as lab
        from labkit.measure.machine import machine
        from tests.rehearsal import torch_cuda
        a, sync = torch.ones(99, 99, device="cuda"), machine().sync
        for wait in (sync, lambda: a[0, 0].item(), a.cpu, torch.cuda.Event().synchronize):
            a @ a
            assert torch_cuda.device.queued() > 0
            wait()
            assert torch_cuda.device.queued() == 0
        lab.time_call(lambda: a @ a, label="waits", sync=sync, budget_s=0.01)
        a @ a
        lab.time_call(lambda: sum(range(1000)), label="on the CPU", budget_s=0.01)
        sync()
        torch_cuda.real_clock = lambda: 100.0
        torch_cuda.device.queue(5 * 10**9)
        assert time.perf_counter() == 95
        sync()
        assert time.perf_counter() == 100
    """
    forgets = refused(
        'lab.time_call(lambda: a @ a, label="forgets")',
        "wait for it with sync=machine.sync",
    )
    rehearse(
        textwrap.dedent(code).replace("sync()\ntorch", f"{forgets}sync()\ntorch"),
        tmp_path,
    )


def test_a_driver_older_than_the_compilers_is_named_with_what_to_do(tmp_path):
    code = """
        import numpy as np
        import labkit as lab
        from numba import cuda
        from scripts import doctor
        from exercises.nb04.gpu_comparison import time_on_gpu
        kernel, row = cuda.jit(lambda x: None), doctor.gpu_compilers("GPU compilers")
        assert row.state == "problem" and row.todo == doctor.OLDER_COMPILERS, row
        there = cuda.to_device(np.zeros(4, np.float32))
        launch = lambda: kernel[1, 32](there)
    """
    words = (
        "The GPU's driver is older than the compiler: update it, or do what `make"
        " doctor` says. The driver said:"
    )
    timed = [refused('lab.time_call(launch, label="a kernel")', words)]
    timed += [
        refused(
            'lab.SpeedBoard("03.9", "A race", size="4").time("CUDA", launch)', words
        )
    ]
    said = rehearse(
        textwrap.dedent(code) + "".join(timed), tmp_path, without="new driver"
    )
    assert said == ""


def test_nccl_without_room_in_shared_memory_says_what_to_do(tmp_path):
    code = """
        import torch.distributed as dist
        import labkit as lab

        def ranks():
            dist.init_process_group("nccl")

        if __name__ == "__main__":
            lab.launch(ranks, 2)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    environ = environment(tmp_path, gpus=2, without="shm")
    done = subprocess.run(
        command, env=environ, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "/dev/shm is too small for NCCL" in done.stderr
    assert all(
        way in done.stderr
        for way in (
            "--shm-size=1g",
            "--ipc=host",
            "NCCL_SHM_DISABLE=1",
            "(size 9637888)",
        )
    )


def test_a_card_whose_memory_is_small_or_taken_gets_smaller_sizes(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("LABKIT_PROFILE", "full")
    code = """
        import torch
        from labkit.measure import catalog, machine
        held = torch.empty({held} * 2**30 // 10, dtype=torch.uint8, device="cuda")
        assert machine.pick(ci=1, cpu=2, gpu=3) == {size}, torch.cuda.mem_get_info()
    """
    rehearse(code.format(held=0, size=3), tmp_path, card="8GB")
    taken = """
        from labkit.measure.probe import Probe, ProbeSizes
        copy, check = Probe("cuda", ProbeSizes(2**29, (16,), 1e-3)).copy()
        assert copy.n == 2**27, copy
        import cupy
        machine.give_back_gpu_memory()
        assert cupy.freed == 1
    """
    rehearse(code.format(held=37, size=2) + taken, tmp_path, card="laptop")


def test_ceilings_keep_the_clock_the_power_and_the_temperature_that_they_were_measured_at(
    tmp_path, monkeypatch
):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\necho '1065 MHz, 1590 MHz, 69.80 W, 70.00 W, 71'\n", encoding="utf-8"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("LABKIT_PROFILE", "smoke")
    code = """
        import labkit as lab
        kept = lab.measure_ceilings()
        assert kept.conditions["power limit"] == "70.00 W"
        print(kept.remarks["clock"])
    """
    said = rehearse(code, tmp_path)
    assert said.startswith(
        "1065 MHz of 1590 MHz, 69.80 W of 70.00 W, 71 °C at the end. Another clock has"
        " other ceilings"
    )


def test_a_gpu_that_torch_has_no_code_for_is_not_used(tmp_path):
    code = """
        from scripts import doctor
        from labkit.measure.machine import machine, pick
        assert (machine().device, machine().gpus) == ("cpu", ())
        print(doctor.gpus("GPUs"))
    """
    said = rehearse(code, tmp_path, card="P100")
    assert "problem" in said
    assert CARDS["P100"][0] in said


def test_a_script_of_ranks_runs_where_they_outnumber_the_gpus(tmp_path):
    (tmp_path / "ranks_device.py").write_text(
        "import torch\n\ndef work():\n    return torch.cuda.current_device()\n"
    )
    code = f"""
        import os, subprocess, sys
        sys.path.insert(0, {str(tmp_path)!r})
        from exercises.nb15.rank_script import as_script
        from ranks_device import work
        train = as_script(work, {str(tmp_path)!r}, nproc=2).train
        for rank in ("0", "1"):
            given = os.environ | dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2")
            subprocess.run([sys.executable, train], env=given, check=True)
    """
    said = rehearse(code, tmp_path).splitlines()
    assert said == ["rank 0 returned 0", "rank 1 returned 0"]


@needs("tensorflow")
def test_tensorflow_uses_the_gpus_that_torch_has_and_leaves_them_memory(tmp_path):
    code = """
        from exercises.nb20.tensorflow_here import tensorflow
        tf = tensorflow()
        gpus = [gpu.name for gpu in tf.config.list_logical_devices("GPU")]
        assert gpus == ["/device:GPU:0", "/device:GPU:1"]
        assert not tf.config.experimental.tensor_float_32_execution_enabled()
        strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
        assert strategy.num_replicas_in_sync == 2
        tf.test.experimental.sync_devices()
    """
    rehearse(code, tmp_path, gpus=2)


def test_the_estimates_are_held_against_this_gpu(tmp_path):
    said = rehearse(
        "from benchmarks import estimates; estimates.main()", tmp_path, card="H100"
    )
    assert "sum by shuffles" in said
    assert "What differed from the estimates on" in said


def test_what_no_notebook_does(tmp_path):
    code = """
        import torch
        import labkit as lab
        from scripts import doctor
        from labkit.measure.machine import machine
        print(doctor.gpus("GPUs"), machine().slug, machine(), lab.profiling.utilization(1e9, 1e-3))
        x = torch.ones(4, device="cuda")
        print(lab.peak_memory(lambda: x * 2))
    """
    waits = refused(
        "lab.graphs.captured(lambda: print(x.sum().item()))",
        "can't be recorded as a CUDA graph",
    )
    assert "tesla-t4 " in rehearse(textwrap.dedent(code) + waits, tmp_path)
