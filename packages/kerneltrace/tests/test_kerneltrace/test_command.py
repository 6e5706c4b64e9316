"""`python -m kerneltrace`: the trace of a kernel in a file, its mistakes in the exit
status, errors in words.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from kerneltrace.__main__ import main
from kerneltrace.command_line import arguments_of, as_declared, load_kernel
from kerneltrace.tracing import trace
from test_kerneltrace.places import ROOT
from test_kerneltrace.tracing import not_on_macos

KERNELS = """
from numba import cuda, float32

@cuda.jit
def scale(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i]

@cuda.jit
def shifted(x, y):
    y[cuda.grid(1)] = x[cuda.grid(1) + 1]

def plain(x):
    x[cuda.threadIdx.y, cuda.threadIdx.x] += 1

@cuda.jit
def dynamic(x):
    s = cuda.shared.array(0, float32)
    s[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    x[cuda.threadIdx.x] = s[cuda.threadIdx.x]

@cuda.jit
def roomy(x):
    own = cuda.local.array(200, float32)
    own[0] = 1
    x[cuda.grid(1)] = own[0]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(KERNELS)
    return path


def test_a_kernel_without_mistakes_is_counted_and_gives_0(file, capsys):
    array = "float32:1024"
    arguments = [
        "--grid",
        "4",
        "--block",
        "256",
        "--arg",
        array,
        "--arg",
        f"zeros:{array}",
        "--arg",
        "1024",
    ]
    assert main([f"{file}::scale", *arguments]) == 0
    out = capsys.readouterr().out
    assert "scale: 4 blocks of 256 threads" in out
    assert "x      global  1,024  0       32        128" in out
    assert "No mistakes found." in out
    assert "calculated" not in out


def test_a_mistake_is_printed_with_its_line_and_gives_1(file, capsys):
    arguments = [
        "--grid",
        "1",
        "--block",
        "32",
        "--arg",
        "float32:32",
        "--arg",
        "float32:32",
    ]
    assert main([f"{file}::shifted", *arguments]) == 1
    assert (
        "[outside] line 12: thread 31 reads x[32], but x has 32 elements"
        in capsys.readouterr().out
    )


def test_a_named_gpu_adds_an_estimate_of_the_full_launch(file, capsys):
    array = "float32:1024"
    arguments = [
        "--grid",
        "4",
        "--block",
        "256",
        "--arg",
        array,
        "--arg",
        array,
        "--arg",
        "1024",
    ]
    device = ["--device", "A100 SXM4 80GB", "--registers", "16"]
    times = []
    for full in ([], ["--full-grid", "65536"]):
        assert main([f"{file}::scale", *arguments, *device, *full]) == 0
        title = next(
            line
            for line in capsys.readouterr().out.splitlines()
            if line.endswith("calculated")
        )
        assert title.startswith("scale on A100 SXM4 80GB: ")
        times.append(title)
    assert times[0] != times[1]


def test_a_short_name_of_a_gpu_says_what_it_is_taken_for(file, capsys):
    launch = ["--grid=1", "--block=16,4", "--arg=int32:4x16", "--device=H100"]
    assert main([f"{file}::plain", *launch]) == 0
    assert "'H100' is taken as H100 SXM5 80GB" in capsys.readouterr().out


def test_two_dimensions_a_plain_function_and_dynamic_shared_memory(file, capsys):
    assert (
        main(
            [
                f"{file}::plain",
                "--grid",
                "1,1",
                "--block",
                "16x4",
                "--arg",
                "int32:4x16",
            ]
        )
        == 0
    )
    launch = [f"{file}::dynamic", "--grid", "1", "--block", "32", "--arg", "float32:32"]
    assert main([*launch, "--shared-bytes", "128"]) == 0
    assert main(launch) == 2
    assert "the launch gives none: pass shared_bytes" in capsys.readouterr().err


def test_arguments_are_what_their_texts_say(tmp_path):
    np.save(tmp_path / "data.npy", np.arange(5, dtype="i2"))
    texts = [
        "float32:8",
        "int64:2x3",
        "zeros:float64:4",
        "ones:bool:2",
        "arange:uint8:2x2",
        "7",
        "-2.5",
        "True",
    ]
    arguments = arguments_of(
        [*texts, "scalar:float32:2.5", str(tmp_path / "data.npy"), "complex64:2"],
        seed=3,
    )
    shapes = [(str(each.dtype), each.shape) for each in arguments[:5]]
    assert shapes == [
        ("float32", (8,)),
        ("int64", (2, 3)),
        ("float64", (4,)),
        ("bool", (2,)),
        ("uint8", (2, 2)),
    ]
    assert ((arguments[0] >= 0) & (arguments[0] < 1)).all()
    assert len(set(arguments[0].tolist())) == 8
    assert ((arguments[1] >= 0) & (arguments[1] < 100)).all()
    assert [each.tolist() for each in arguments[2:5]] == [
        [0] * 4,
        [True] * 2,
        [[0, 1], [2, 3]],
    ]
    assert arguments[5:8] == [7, -2.5, True]
    assert [type(each) for each in arguments[5:9]] == [int, float, bool, np.float32]
    assert arguments[9].tolist() == [0, 1, 2, 3, 4]
    again = arguments_of(["float32:8"], seed=3)[0]
    assert (again == arguments[0]).all()
    assert (arguments_of(["float32:8"], seed=4)[0] != arguments[0]).any()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "float33:4",
            "'float33:4'. The nearest type is float32. An array is float32:1024",
        ),
        ("float32:-4", "'-4' is no shape"),
        ("nothing:float32:4", "'nothing' is none of zeros, ones, arange and scalar"),
        ("many", "Expected an argument of a kernel, got 'many'. An array is"),
        ("gone.npy", "numpy.save wrote in gone.npy: No such file or directory."),
        ("scalar:int8:300", "got 'scalar:int8:300'. int8 has no such number."),
        ("scalar:int32:2.7", "int32 has no such number"),
        (
            "float32:2000000000",
            "no memory for an array of that shape. The most is 1 GiB",
        ),
    ],
)
def test_an_argument_that_stands_for_none_is_refused_in_words(text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        arguments_of([text], seed=0)


@pytest.mark.parametrize("text", ["scalar:float32:inf", "scalar:int8:-128"])
def test_a_number_that_its_type_has_is_taken(text):
    (actual,) = arguments_of([text], seed=0)
    assert str(float(actual)) == str(float(text.rpartition(":")[2]))


@pytest.mark.parametrize("content", [b"junk", b"\x93NUMPY\x01\x00"])
def test_a_file_of_another_kind_is_refused_without_advice_to_load_it(tmp_path, content):
    (tmp_path / "junk.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"junk\.npy: it holds something else\.$"):
        arguments_of([str(tmp_path / "junk.npy")], seed=0)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "large.npy").open("wb") as file:
        file.truncate((1 << 30) + 1)  # without a block on the disk
    with pytest.raises(ValueError, match="Expected a file of at most 1 GiB"):
        arguments_of([str(tmp_path / "large.npy")], seed=0)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("gone.py::scale", "no file gone.py"),
        ("{file}::scael", "mine.py has scale, "),
        ("{file}", "mine.py has scale, shifted, plain, dynamic, roomy."),
    ],
)
def test_a_kernel_that_is_not_there_is_refused_in_words(file, kernel, words, capsys):
    assert main([kernel.format(file=file), "--grid", "1", "--block", "32"]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert "Traceback" not in printed.err + printed.out


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "import no_such_package",
            "ModuleNotFoundError: No module named 'no_such_package'. Make `python ",
        ),
        ("def broken(:", "SyntaxError"),
        ("x = 1", "defines no function"),
    ],
)
def test_a_file_that_cannot_be_run_is_one_sentence(tmp_path, source, words):
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(ValueError, match=re.escape(words)):
        load_kernel(f"{tmp_path / 'broken.py'}::k")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (
            "--grid",
            "some",
            "Expected --grid to be whole numbers such as 4 or 16,16, got 'some'",
        ),
        ("--block", "2048", "block.x to be 1 to 1,024, got 2,048"),
        ("--device", "T5", "Nearest names: T4"),
        ("--registers", "300", "Expected at most 255 registers a thread, got 300"),
        ("--device", "TPU v5e (chip)", "Take another GPU"),
        ("--full-grid", "0", "Expected --full-grid.x to be 1 to"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_in_words_before_anything_runs(
    file, option, value, words, capsys
):
    passed = {"--grid": "1", "--block": "32", "--device": "T4"} | {option: value}
    launch = [part for pair in passed.items() for part in pair]
    assert (
        main(
            [
                f"{file}::scale",
                *launch,
                "--arg",
                "float32:32",
                "--arg",
                "float32:32",
                "--arg",
                "32",
            ]
        )
        == 2
    )
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("option", [["--full-grid", "64"], ["--registers", "32"]])
def test_an_option_of_the_estimate_needs_a_gpu(file, option, capsys):
    launch = [
        "--grid",
        "1",
        "--block",
        "32",
        "--arg",
        "float32:32",
        "--arg",
        "float32:32",
        "--arg",
        "32",
    ]
    assert main([f"{file}::scale", *launch, *option]) == 2
    assert (
        "Expected --device beside --full-grid and --registers, got none."
        in capsys.readouterr().err
    )


def test_a_mistake_gives_1_where_the_estimate_fails_later(file, capsys):
    assert (
        main(
            [
                f"{file}::roomy",
                "--grid",
                "1",
                "--block",
                "1024",
                "--arg",
                "float32:32",
                "--device",
                "T4",
            ]
        )
        == 1
    )
    printed = capsys.readouterr()
    assert "[outside]" in printed.out
    assert "registers each takes" in printed.err


@pytest.mark.parametrize("columns", ["60"])
def test_what_is_found_fits_the_terminal(file, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    launch = [
        "--grid",
        "1",
        "--block",
        "32",
        "--arg",
        "float32:32",
        "--arg",
        "float32:32",
        "--device",
        "T4",
    ]
    assert main([f"{file}::shifted", *launch]) == 1
    lines = capsys.readouterr().out.splitlines()
    notes = [line for line in lines if not line.startswith(("array", "x  ", "y  "))]
    assert max(map(len, notes)) <= int(columns)
    assert "thread 31 reads x[32], but x has 32 elements, 0 to 31." in " ".join(
        " ".join(lines).split()
    )


def report(capsys, *arguments):
    """The exit status and the object that --json prints."""
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_json_has_counts_an_estimate_and_a_review(file, capsys):
    arrays = ["--arg=float32:1024", "--arg=y=zeros:float32:1024", "--arg=n=1024"]
    launch = [f"{file}::scale", "--grid=4", "--block=256", *arrays]
    status, fields = report(capsys, *launch, "--device=H100", "--review=H100")
    assert status == 0
    assert [fields[name] for name in ("kernel", "grid", "block", "ok", "error")] == [
        "scale",
        [4, 1, 1],
        [256, 1, 1],
        True,
        None,
    ]
    assert fields["counts"]["x"]["sectors_per_request"] == 4
    assert fields["estimate"]["device"] == fields["review"]["estimate"]["device"]
    assert "taken as H100 SXM5" in fields["review"]["device_assumed"]
    status, fields = report(capsys, f"{file}::shifted", *launch[1:-1])
    assert status == 1
    assert [(each["kind"], each["line"]) for each in fields["findings"]] == [
        ("outside", 12)
    ]


def test_a_review_lists_what_wastes_time_by_line(file, capsys):
    launch = ["--grid=1", "--block=1,32", "--arg=float32:32x32", "--review=T4"]
    assert main([f"{file}::plain", *launch]) == 0
    assert "uncoalesced, line 15" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["float32:4", "float32:4"], "scale(x, y, n): n is left out. Add a number"),
        (["n=4", "float32:4"], "y is left out"),
        (["m=4"], "scale(x, y, n) has no 'm'"),
        (["float32:4"] * 4, "scale(x, y, n) takes 3 arguments, got 4."),
    ],
)
def test_an_argument_left_out_is_asked_for_by_its_name(file, arguments, words, capsys):
    passed = [f"--arg={text}" for text in arguments]
    launch = [f"{file}::scale", "--grid=1", "--block=4"]
    status, fields = report(capsys, *launch, *passed)
    assert status == 2
    assert words in fields["error"]


EAGER = """
from numba import cuda, float32, void

@cuda.jit("float32(float32, float32)", device=True)
def third(a, b):
    return a / b

@cuda.jit("void(float32[:], float64)")
def text(x, by):
    x[cuda.grid(1)] = third(by, 3.0)

@cuda.jit([void(float32[:], float32), void(float32[:, :], float32)])
def several(x, by):
    x[cuda.grid(1)] *= by

FACTOR = 2.0
if FACTOR:
    FACTOR = float(cuda.to_device([1])[0])
several[1, 32](cuda.to_device([1.0]), 2.0)

@cuda.jit
def scaled(x):
    x[cuda.grid(1)] *= FACTOR
"""


@pytest.mark.parametrize(
    ("kernel", "arguments", "status", "words"),
    [
        ("text", ["float32:32", "2"], 0, "[note: left out] eager.py ran without"),
        ("several", ["float32:32", "2"], 0, "32 FLOP"),
        ("several", ["float64:32", "2"], 2, "(array(float32, 1d, A), float32) or"),
        ("scaled", ["float32:32"], 2, "'FACTOR' is not defined"),
    ],
)
def test_a_file_made_for_a_gpu_is_traced_without_one(
    tmp_path, kernel, arguments, status, words, capsys
):
    (tmp_path / "eager.py").write_text(EAGER)
    passed = [f"--arg={text}" for text in arguments]
    launch = [f"{tmp_path / 'eager.py'}::{kernel}", "--grid=1", "--block=32", *passed]
    assert main(launch) == status
    printed = capsys.readouterr()
    assert words in " ".join((printed.out + printed.err).split())


def test_a_declared_device_function_computes_in_its_types(tmp_path):
    (tmp_path / "eager.py").write_text(EAGER)
    loaded = load_kernel(f"{tmp_path / 'eager.py'}::text")
    x = np.zeros(32, np.float32)
    passed = as_declared(loaded.signatures, [x, 2])
    assert type(passed[1]) is np.float64
    traced = trace(loaded.kernel, 1, 32, *passed)
    assert traced.ok
    assert (x == np.float32(2) / np.float32(3)).all()


TILES = """
from kerneltrace.tiles import tl, triton

DEVICE = triton.runtime.driver.active.get_active_torch_device()

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr, SIGN: tl.constexpr = 1):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) + SIGN, at < n)

@triton.jit
def same(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tl.program_id(0))

@triton.jit
def ordered(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.sort(tl.load(x + at)))
"""
ADD = ["add", "--arg=float32:128", "--arg=zeros:float32:128", "--arg=n=128"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([*ADD, "--constant=BLOCK=64"], 0, "add: 2 programs"),
        ([*ADD, "--constant=BLOCK=64", "--device=A100"], 0, "add on A100 SXM4"),
        (ADD, 2, "BLOCK is left out. Add its value: --constant BLOCK=64."),
        ([*ADD, "--constant=64"], 2, "Expected --constant to be NAME=VALUE"),
        (["same", "--arg=int32:64", "--constant=BLOCK=64"], 1, "[race] line 13"),
        (["ordered", "--arg=int32:64", "--constant=BLOCK=64"], 2, "With --block 128"),
    ],
)
def test_a_triton_kernel_runs_tile_by_tile(tmp_path, arguments, status, words, capsys):
    (tmp_path / "tiles.py").write_text(TILES)
    kernel, *rest = arguments
    assert main([f"{tmp_path / 'tiles.py'}::{kernel}", "--grid=2", *rest]) == status
    printed = capsys.readouterr()
    assert words in " ".join((printed.out + printed.err).split())


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
def test_a_triton_kernel_with_a_block_runs_as_ptx(tmp_path, capsys):
    (tmp_path / "tiles.py").write_text(TILES)
    launch = [f"{tmp_path / 'tiles.py'}::add", "--grid=2", *ADD[1:], "--block=32"]
    status, fields = report(capsys, *launch, "--constant=BLOCK=64")
    assert (status, fields["block"]) == (0, [32, 1, 1])
    status, fields = report(capsys, *launch, "--constant=BLOCK=64", "--tiles")
    assert (status, fields["block"]) == (0, None)


@pytest.mark.slow
@not_on_macos
def test_a_file_of_cplusplus_runs_without_its_host_code(tmp_path, capsys):
    (tmp_path / "size.h").write_text("#define SIZE 32\n")
    (tmp_path / "mine.cu").write_text(
        '#include <iostream>\n#include "size.h"\n'
        "template <class T> __global__ void half(T* x) { x[threadIdx.x] /= 2; }\n"
        "__global__ void fill(float* x) { if (threadIdx.x < SIZE) x[0] = 1; }\n"
        "int main() { half<float><<<1, SIZE>>>(nullptr); std::cout << 1; }\n"
    )
    launch = ["--grid=1", "--block=32", "--arg=float32:32"]
    status, fields = report(capsys, f"{tmp_path / 'mine.cu'}::half", *launch)
    assert status == 0
    assert fields["notes"][0]["words"] == "Host code was not compiled: main (line 5)."
    assert fields["counts"]["x"]["writes"] == 32
    launch[-1] = "--arg=float64:32"
    assert main([f"{tmp_path / 'mine.cu'}::half<double>", *launch]) == 0


@pytest.mark.slow
def test_the_command_finds_the_files_beside_the_kernels_own(tmp_path):
    (tmp_path / "beside_it.py").write_text("FACTOR = 3.0\n")
    (tmp_path / "two_files.py").write_text(
        "from numba import cuda\nfrom beside_it import FACTOR\n\n\n"
        "@cuda.jit\ndef times(x):\n    x[cuda.grid(1)] *= FACTOR\n"
    )
    command = [
        sys.executable,
        "-m",
        "kerneltrace",
        str(tmp_path / "two_files.py::times"),
        "--grid=1",
        "--block=32",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    completed = subprocess.run(
        [*command, "--arg=float32:32"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "times: 1 block of 32 threads" in completed.stdout
    # a reader that stops, as head does, is no error
    with subprocess.Popen(
        [*command[:3], "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as running:
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait() == 0
