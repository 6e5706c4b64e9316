"""What a reader's kernel does with a memory error: one sentence, and the next cell
works.
"""

import nbformat
import pytest
from nbclient import NotebookClient

from labkit.lesson import notebook
from scripts import setup

pytestmark = pytest.mark.slow  # starts kernels

TORCH_CUDA = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a capacity of 139 GiB,"
    " 10 GiB is free."
)
TORCH_CPU = (
    "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you"
    " tried to allocate 4096 bytes."
)
NUMPY = (
    "Unable to allocate 7.28 TiB for an array with shape (1000000, 1000000) and data"
    " type float64"
)


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (TORCH_CUDA, 20 * 2**30),
        (TORCH_CPU, 4096),
        (NUMPY, 7.28 * 2**40),
        ("mat1 and mat2 shapes cannot be multiplied", None),
    ],
)
def test_the_size_asked_for_is_read_from_the_message(message, asked):
    assert notebook.asked_bytes(message) == asked


def run(*sources):
    """The outputs of cells run one after the other in a real kernel."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=cells), allow_errors=True, timeout=200
    )
    return [cell.outputs for cell in client.execute().cells]


def errors(outputs):
    return [
        (o.ename, "".join(o.traceback)) for o in outputs if o.output_type == "error"
    ]


@pytest.fixture(scope="module")
def outputs():
    return run(
        "import labkit as lab; import torch, numpy; machine = lab.start()",
        "filled = torch.ones(2**20); torch.empty(2**50)",
        "numpy.ones((2**25, 2**25))",
        (
            f"raise torch.OutOfMemoryError({TORCH_CUDA!r})"
            if not notebook.machine().gpus
            else "torch.empty(2**50, device='cuda')"
        ),
        "raise RuntimeError('something else')",
        "6 * 7",
    )


@pytest.mark.parametrize("cell", [1, 2])
def test_too_large_an_allocation_is_one_sentence(outputs, cell):
    ((name, trace),) = errors(outputs[cell])
    assert name == "OutOfMemory"
    assert "iB is free" in trace
    assert "File" not in trace


def test_other_errors_are_shown_as_always(outputs):
    ((name, trace),) = errors(outputs[4])
    assert name == "RuntimeError"
    assert "Restart" not in trace
    assert "something else" in trace


def test_long_lines_of_text_break_between_words(outputs):
    (style,) = [o.data["text/html"] for o in outputs[0] if "data" in o]
    assert "word-break:normal" in style


def test_the_next_cell_works(outputs):
    assert outputs[5][0].data["text/plain"] == "42"


def test_a_name_that_no_cell_has_set_leads_to_the_cells_above():
    early = "def early():\n    late\n    late = 1\n\n\nearly()"
    _, unknown, too_early = run(
        "import labkit as lab; machine = lab.start()", "borad", early
    )
    ((name, trace),) = errors(unknown)
    assert name == "NameError"
    assert "name 'borad' is not defined" in trace
    assert "Run All Above Selected Cell" in trace
    ((name, trace),) = errors(too_early)
    assert name == "UnboundLocalError"
    assert "Run All Above" not in trace


def test_a_fresh_kernel_says_so_too(tmp_path, monkeypatch):
    setup.configure_kernel(tmp_path)
    (config,) = tmp_path.rglob("ipython_kernel_config.py")
    profile = tmp_path / "profile_default"
    profile.mkdir()
    config.rename(profile / config.name)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    ((name, trace),) = errors(run("board.time('mine', step)")[0])
    assert name == "NameError"
    assert "name 'board' is not defined" in trace
    assert "Run All Above Selected Cell" in trace


PLANT = """
import labkit as lab
from labkit.measure.contention import Contention, Watch
lab.start(), lab.start()
Watch.so_far = lambda self: Contention(0.38, "busy") if busy else Contention(0.0)
busy = False
"""


@pytest.mark.complete
def test_a_kernel_marks_what_its_busy_cells_record_and_forgets_them_after():
    cells = (
        PLANT,
        "busy = True",
        "busy = False",
        record := "print(lab.record('99.1 a', 1.0, 's').busy)",
        record,
    )
    assert [outputs[0].text for outputs in run(*cells)[3:]] == ["busy\n", "\n"]


def test_after_a_fault_of_the_gpu_the_reader_is_told_to_restart():
    fault = "raise RuntimeError('CUDA error: an illegal memory access was encountered')"
    ((name, text),) = errors(
        run("import labkit as lab; machine = lab.start()", fault)[1]
    )
    assert name == "RuntimeError"
    assert "an illegal memory access" in text
    assert "Restart the kernel" in text
