"""The room of graphs: breaks and their reasons, operators and kernels counted,
compilers that are missing.
"""

import contextlib
import gc
import importlib
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

from exercises.nb10.breaking import _meaning, breaks
from exercises.nb10.fusion import _read, fusion
from labkit.core.errors import DataError, GraphCompileError, LabError
from labkit.core.paths import ROOT
from labkit.measure.machine import machine
from labkit.train import graphs
from labkit.train.graphs import compiling
from tests.needs import COMPILER, needs

pytestmark = pytest.mark.slow  # runs torch.compile

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.fixture(autouse=True)
def same_as_before(monkeypatch):
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
        monkeypatch.delenv(name)  # at the end the value of now comes back, or none
    yield
    torch.compiler.reset()


def whole(x):
    return torch.where(x.sum() > 0, x + 1, x - 1)


def takes_a_number(x):
    return x * x.mean().item()


def branches(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y - 3


def prints(x):
    print("now")
    return x + 1


def by_mask(x):
    return x[x > 0] * 2


def test_a_function_of_tensors_alone_is_one_graph():
    found = breaks(whole, torch.rand(4))
    assert (found.graphs, found.breaks) == (1, ())
    assert len(found.operators) == 1
    assert "no break" in str(found)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (takes_a_number, "a number is taken out of a tensor"),
        (branches, "which way to go depends on the numbers in a tensor"),
        (by_mask, "the shape of a result depends on the numbers in a tensor"),
    ],
)
def test_a_break_is_told_in_a_sentence_with_its_line(fn, words):
    found = breaks(fn, torch.rand(4))
    assert found.graphs == 2
    (only,) = found.breaks
    assert words in only.reason
    assert (
        only.line
        in Path(__file__).read_text(encoding="utf-8").splitlines()[only.number - 1]
    )
    assert only.line in found._repr_html_().replace("&gt;", ">")


def test_a_break_before_the_first_operator_is_not_lost():
    found = breaks(prints, torch.rand(4))
    assert found.graphs == 1
    assert [b.reason for b in found.breaks] == ["print is called"]


def test_a_branch_that_is_not_taken_does_not_break():
    def guarded(x, loud):
        if loud:
            print("x")
        return x + 1

    assert breaks(guarded, torch.rand(2), False).breaks == ()
    assert len(breaks(guarded, torch.rand(2), True).breaks) == 1


def test_reasons_of_other_versions_are_told_too():
    assert _meaning("generic_jump TensorVariable()").startswith("which way to go")
    assert _meaning("Unsupported Tensor.item() call with ...").startswith(
        "a number is taken out"
    )
    assert (
        _meaning("builtin: print [<class 'ConstantVariable'>] False")
        == "print is called"
    )
    assert _meaning("Failed\n  Explanation: No way.\n  Hint: none") == "No way."
    assert _meaning("something new\nmore") == "something new"


def test_operators_of_forward_and_backward_are_counted_and_views_are_not():
    layer = torch.nn.Linear(8, 4)
    x = torch.rand(2, 8)
    found = graphs.operators(lambda: layer(x).relu().T.sum().backward())
    assert found.counts["aten.addmm"] == found.counts["aten.relu"] == 1
    assert found.counts["aten.mm"] == 1  # x needs no gradient
    assert (
        not {"aten.t", "aten.view", "aten.detach", "aten.expand"} & found.counts.keys()
    )
    assert found.total == sum(found.counts.values())


def test_new_memory_is_that_of_results_not_of_what_is_overwritten():
    x = torch.rand(1000)
    assert graphs.operators(lambda: x + 1).new_bytes == 4000
    assert graphs.operators(lambda: (x + 1) * 2).new_bytes == 8000
    assert graphs.operators(lambda: (x + 1).mul_(2)).new_bytes == 4000
    assert graphs.operators(lambda: x.mul_(1)).new_bytes == 0
    out = torch.empty(1000)
    assert graphs.operators(lambda: torch.add(x, 1, out=out)).new_bytes == 0
    assert graphs.operators(lambda: torch.empty(1000).fill_(1)).counts == {
        "aten.fill_": 1
    }


CPP = """
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
void kernel(const float* in, float* out) {}
''')
cpp_fused_relu_1 = async_compile.cpp_pybinding(['float*'], r'''
void kernel(float* out) {}
''')
async_compile.wait(globals())
def call(args):
    cpp_fused_add_0(arg0_1, buf0)
    extern_kernels.addmm(bias, buf0, weight, out=buf1)
    cpp_fused_relu_1(buf1)
    cpp_fused_add_0(buf1, buf2)
def benchmark_compiled_module(times=10):
    cpp_fused_add_0(1)
"""
TRITON = """
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
@triton.jit
def triton_poi_fused_add_0(in_ptr0, out_ptr0):
    pass
''', device_str='cuda')
async_compile.wait(globals())
    def call(self, args):
        triton_poi_fused_add_0.run(arg0_1, buf0, 64, stream=stream0)
"""


def test_kernels_are_counted_by_their_calls():
    found = _read(9, CPP)
    assert (found.operators, found.kernels, found.library_calls) == (9, 3, 1)
    assert found.names == ("cpp_fused_add_0", "cpp_fused_relu_1")
    assert "benchmark" not in found.code
    assert str(found).startswith(
        "9 operators became 3 kernels and 1 library call: cpp_fused_add_0"
    )
    assert _read(1, TRITON).kernels == 1
    assert "@triton.jit" in _read(1, TRITON).code
    assert str(_read(1, "")) == "1 operator became 0 kernels: none written"


@pytest.mark.complete
@needs(*COMPILER)
def test_a_chain_becomes_one_kernel_that_gives_the_same(monkeypatch):
    monkeypatch.setenv("LABKIT_PROFILE", "ci")

    def chain(x, y):
        return torch.relu(x * y + 1) * 0.5

    x, y = torch.randn(2, 5000)
    first = graphs.fresh_cache()
    second = graphs.fresh_cache()
    assert first != second
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(second)
    assert list(second.iterdir()) == []
    assert torch.allclose(graphs.compiled(chain)(x, y), chain(x, y))
    assert any(second.rglob("*.so" if machine().device == "cpu" else "*"))
    third = graphs.fresh_cache()
    # built once more, though this process has it in memory
    graphs.compiled(chain)(x, y)
    assert any(third.rglob("*.so" if machine().device == "cpu" else "*"))
    for _ in range(2):  # also where the result is on the disk already
        found = fusion(chain, x, y)
        assert (found.operators, found.kernels) == (4, 1)
    assert "tmp" in found.code


@pytest.mark.complete
@needs(*COMPILER)
@pytest.mark.skipif(
    sys.platform == "win32", reason="links to folders need rights there"
)
def test_paths_with_spaces_are_compiled_in(tmp_path):
    """Of torch, of labkit's cache and of the temporary folder; torch quotes only some
    in the compiler's command.
    """
    spaced = tmp_path / "a ü b"
    for folder in ("site", "home", "tmp"):
        (spaced / folder).mkdir(parents=True)
    (spaced / "site" / "torch").symlink_to(Path(torch.__file__).parent)
    code = (
        "import os, torch; from labkit.train import graphs\nassert ' ' in"
        " torch.__file__\nprint(graphs.compiled(lambda x: x.sin() +"
        " 1)(torch.zeros(3)).tolist(), os.environ['TORCHINDUCTOR_CACHE_DIR'])"
    )
    environment = {
        "PYTHONPATH": f"{spaced / 'site'}{os.pathsep}{ROOT}",
        "LABKIT_HOME": str(spaced / "home"),
        "TMPDIR": str(spaced / "tmp"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("[1.0, 1.0, 1.0] "), done.stderr
    assert not Path(done.stdout.strip().rsplit(" ", 1)[1]).parent.exists(), (
        "the folder without a space was left"
    )


@needs(*COMPILER)
def test_what_the_compiler_will_run_lies_in_no_folder_that_others_may_write_to(
    home, monkeypatch
):
    graphs.compiled(whole)
    codecache = importlib.import_module("torch._inductor.codecache")
    for folder in (
        os.environ["TORCHINDUCTOR_CACHE_DIR"],
        codecache._HEADER_DIR,
        codecache._HEADER_LOCK_DIR,
    ):
        assert Path(folder).is_relative_to(home / "cache")
    assert (home / "cache").stat().st_mode & 0o777 == 0o700
    (home / "cache").chmod(0o777)  # from now on this user's part of it is used
    mine = home / "cache" / f"user-{os.getuid()}"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    graphs.compiled(whole)
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(mine)
    assert graphs.fresh_cache().is_relative_to(mine)
    assert mine.stat().st_mode & 0o777 == 0o700
    mine.chmod(0o777)
    with pytest.raises(
        DataError, match=r"another user owns it or may write to it.*LABKIT_HOME"
    ):
        graphs.compiled(whole)
    with pytest.raises(
        DataError, match=r"another user owns it or may write to it.*LABKIT_HOME"
    ):
        graphs.fresh_cache()


def test_a_backend_that_builds_nothing_needs_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert graphs.missing()
    assert graphs.compiled(whole, backend="eager")(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU it is a C compiler")
def test_without_a_compiler_one_sentence_says_what_to_do_and_the_next_call_works(
    monkeypatch,
):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    with pytest.raises(
        GraphCompileError, match=r"needs a C\+\+ compiler .* install one .*aot_eager"
    ):
        graphs.compiled(whole)
    with pytest.raises(GraphCompileError, match=r"a C\+\+ compiler"):
        fusion(whole, torch.rand(3))
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "/nowhere")
    assert graphs.missing() == "a C++ compiler"
    monkeypatch.undo()
    graphs.compiled(whole, backend="eager")(torch.rand(3))


def test_on_a_gpu_it_needs_triton_and_a_c_compiler(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(
        compiling, "machine", lambda: type("M", (), {"gpus": ("a GPU",)})
    )
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: None)
    assert graphs.missing() == "Triton"
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", {"clang": "/usr/bin/clang"}.get)
    assert graphs.missing() == ""
    monkeypatch.setattr(
        compiling.sysconfig, "get_path", lambda name: "/nowhere/include"
    )
    assert graphs.missing() == "Python's headers"
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert graphs.missing() == "a C compiler"


class FakeGraph:
    """torch.cuda.graph whose recording another call may have broken, and which keeps
    nothing alive.
    """

    def __init__(self, broken=False):
        self.broken = broken
        self.replays = 0
        self.streams = []

    def replay(self):
        self.replays += 1

    def __enter__(self):
        return self

    def __exit__(self, *args):
        if self.broken:
            raise RuntimeError(
                "CUDA error: operation failed due to a previous error during"
                " capture\nmore"
            )


@pytest.fixture
def fake_graph(monkeypatch):
    fake = FakeGraph()
    stream = type("S", (), {"wait_stream": lambda self, other: None})
    monkeypatch.setattr(
        compiling, "machine", lambda: type("M", (), {"gpus": ("a GPU",)})
    )
    monkeypatch.setattr(torch.cuda, "Stream", stream)
    usual = stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: usual)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "set_stream", fake.streams.append)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: fake)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: graph)
    return fake


def test_a_replay_keeps_the_tensors_of_its_step_alive_and_runs_no_python(fake_graph):
    def prepared():
        weight = torch.zeros(3)
        runs = []
        return weakref.ref(weight), runs, lambda: (runs.append(1), weight.add_(1))

    weight, runs, step = prepared()
    replay = graphs.captured(step)
    del step
    gc.collect()
    # else its memory would serve others, and each replay write there
    assert weight() is not None
    assert (replay(), replay()) == (None, None)
    assert (len(runs), fake_graph.replays) == (3 + 1, 2)
    del replay
    gc.collect()
    assert weight() is None


@pytest.mark.gpu
@needs_gpu
def test_a_captured_step_trains_as_the_eager_one():
    def prepared():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
        ).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(16, 8, device="cuda")
        y = torch.randint(0, 2, (16,), device="cuda")

        def step():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

        return model, step

    eager, step = prepared()
    # capturing warms up with three steps; the recording itself computes nothing
    for _ in range(3 + 10):
        step()
    model, step = prepared()
    replay = graphs.captured(step)
    for _ in range(10):
        replay()
    for found, wanted in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@needs_gpu
def test_a_step_that_waits_for_the_gpu_is_not_captured():
    x = torch.rand(3, device="cuda")
    with pytest.raises(LabError, match="can't be recorded"):
        graphs.captured(lambda: x.sum().item())
    assert (x + 1).sum().item() > 0  # the next cell works
