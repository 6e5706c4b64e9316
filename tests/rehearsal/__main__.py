"""Run the notebooks on pretend GPUs: python -m tests.rehearsal [configurations]
[numbers of notebooks].

Prints each notebook's time and errors; after the configurations CPU and T4 also the
share of the lines that only a GPU reaches which have run. Exit 1 for an error, or for a
share under 95 %.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coverage
import nbclient
import nbformat
import torch
from ipykernel.compiler import get_file_name

from labkit.core.paths import SOURCES
from tests.helpers import code_cells, notebook_paths
from tests.rehearsal import ROOT, environment

SOLVED = ROOT / "build" / "solved"
OUT = ROOT / "build" / "rehearsal"
CONFIGURATIONS = {
    # name: arguments of `environment`; whether the notebooks are solved; which ones:
    # those that look at what differs
    # 14 and 15 use none, or in ranks
    "CPU": (None, True, "00 01 02 03 04 05 06 07 08 09 10 11 12 13 16"),
    "T4": ({"card": "T4"}, True, ""),
    "no-cupti": ({"without": "cupti"}, True, "07 10"),
    "no-cupy": ({"without": "cupy"}, True, "05 06"),
    "no-triton": ({"without": "triton"}, True, "06 10"),
    "H100": ({"card": "H100"}, False, "01 04 05 06 07 09 10"),
    # not 13: torch's functional collectives crash the CPU build on them
    "two": ({"gpus": 2}, True, "12 14 20"),
    "tests": ({}, False, "none"),  # of tests/rehearsal: what no notebook reaches
}
LEAST_SHARE = 0.95
TRIED = ("solution", "wrong_answers", "wrong_operators")  # answers, which the tests run
_GPU = re.compile(
    r"gpus\b|cuda\.is_available|has_gpu|on_gpu|is_cuda|[\"'](cuda|nccl)[\"']"
)
_SETTINGS = """\
[run]
data_file = {folder}/lines
parallel = true
concurrency = multiprocessing, thread
include = */labkit/*, */kerneltrace/*, */ranks/*, */steptime/*, */exercises/*, */ipykernel_*/*
"""


def execute(path: Path, environ: dict[str, str]) -> list[str]:
    """Run a notebook; its errors, in words."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(ROOT / "notebooks")}}
    client = nbclient.NotebookClient(
        notebook, timeout=300, allow_errors=True, resources=resources
    )
    try:
        client.execute(env=environ)
    except nbclient.exceptions.DeadKernelError:
        return ["The kernel died."]
    except nbclient.exceptions.CellTimeoutError as error:
        return [str(error)]
    (OUT / path.name).write_text(nbformat.writes(notebook), encoding="utf-8")
    return [
        f"cell {i}: {output.ename}: {output.evalue[:300]}"
        for i, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    ]


def rehearse(name: str, only: list[str], *, lines: bool) -> int:
    """Run a configuration's notebooks, two at a time, with `lines` noting those that
    run; how many cells failed.
    """
    arguments, solved, numbers = CONFIGURATIONS[name]
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=OUT))
    (folder / "settings").write_text(_SETTINGS.format(folder=folder), encoding="utf-8")
    counting = {"LABKIT_PROFILE": "smoke"}  # does every line run?
    if lines:
        counting["COVERAGE_PROCESS_START"] = str(folder / "settings")
    if arguments is None:
        paths = os.pathsep.join(
            map(str, (ROOT / "tests" / "rehearsal" / "startup", ROOT))
        )
        environ = os.environ | {"PYTHONPATH": paths, "LABKIT_HOME": str(folder)}
    else:
        environ = environment(folder, **arguments)
    here = SOLVED if solved else ROOT / "notebooks"
    wanted = [set(each) for each in (numbers.split(), only) if each]
    chosen = [
        p
        for p in sorted(here.glob("[0-9]*.ipynb"))
        if all(p.name[:2] in each for each in wanted)
    ]

    def one(path: Path) -> int:
        began_s = time.monotonic()
        errors = execute(path, environ | counting)
        print(
            f"{name:10} {path.name:44} {time.monotonic() - began_s:4.0f} s",
            *errors,
            sep="\n    ",
            flush=True,
        )
        return len(errors)

    if name == "tests":
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/rehearsal",
        ]
        return subprocess.run(
            command, cwd=ROOT, env=os.environ | counting, check=False
        ).returncode
    with ThreadPoolExecutor(int(os.environ.get("REHEARSAL_WORKERS", "2"))) as pool:
        return sum(pool.map(one, chosen))


def lines_run(name: str) -> dict[str, set[int]]:
    """The lines that the latest run of a configuration reached, by file; of a
    notebook's cell by its hash.
    """
    data = coverage.CoverageData(str(OUT / f"{name}.lines"))
    folder = max(OUT.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)
    for part in folder.glob("lines.*"):
        one = coverage.CoverageData(str(part))
        one.read()
        data.update(one)
    found: dict[str, set[int]] = {}
    for file in data.measured_files():
        key = (
            Path(file).stem
            if "/ipykernel_" in file
            else str(Path(file).relative_to(ROOT))
        )
        found.setdefault(key, set()).update(data.lines(file) or ())
    return found


def sources() -> dict[str, tuple[str, str]]:
    """By the key of `lines_run`: a name to print, and the text, of packages, exercises
    and cells.
    """
    # trainplan's GPUs are planned, gpufacts' are rows of a table
    names = SOURCES.keys() - {"gpufacts", "trainplan"}
    packages = (path for name in names for path in SOURCES[name].rglob("*.py"))
    paths = [
        *packages,
        *(path for path in ROOT.glob("exercises/**/*.py") if path.stem not in TRIED),
    ]
    found = {
        str(p.relative_to(ROOT)): (str(p.relative_to(ROOT)), p.read_text())
        for p in paths
    }
    for path in notebook_paths():
        for i, text in enumerate(code_cells(path)):
            found[Path(get_file_name(text)).stem] = (
                f"{path.name[:2]}, code cell {i}",
                text,
            )
    return found


def guarded(text: str) -> tuple[set[int], set[int]]:
    """The first lines of all statements, and of those below a condition that only a GPU
    meets.
    """
    behind: set[int] = set()
    tree = ast.parse(re.sub(r"(?m)^(\s*)[!%].*$", r"\1pass", text))
    for node in ast.walk(tree):
        for block in (getattr(node, field, None) for field in ("body", "orelse")):
            for i, statement in enumerate(block if isinstance(block, list) else []):
                if not isinstance(statement, ast.If) or not _GPU.search(
                    words := ast.unparse(statement.test)
                ):
                    continue
                refused = words.startswith("not ") or ("==" in words and "cpu" in words)
                ends = isinstance(
                    statement.body[-1], ast.Return | ast.Raise | ast.Continue
                )
                of_gpu = (
                    statement.orelse + block[i + 1 :] * ends
                    if refused
                    else statement.body
                )
                behind |= {
                    n.lineno
                    for part in of_gpu
                    for n in ast.walk(part)
                    if isinstance(n, ast.stmt)
                }
    return {
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)
    }, behind


def report(names: list[str]) -> float:
    """Print what only a GPU reaches and the rehearsal did not; the
    share that it did.
    """
    without = lines_run("CPU")
    rehearsed = [lines_run(name) for name in names if name != "CPU"]
    ran = 0
    missed = list[str]()
    for key, (name, text) in sources().items():
        statements, behind = guarded(text)
        on_gpu = set().union(*(one.get(key, set()) for one in rehearsed)) & statements
        ran += len(on_gpu - without.get(key, set()))
        lines = sorted(behind - on_gpu - without.get(key, set()))
        missed += [
            f"{name}, line {line}: {text.splitlines()[line - 1].strip()}"
            for line in lines
        ]
    share = ran / max(ran + len(missed), 1)
    print(
        *missed,
        f"Of {ran + len(missed)} lines that only a GPU reaches, {share:.1%} have run.",
        sep="\n",
    )
    return share


def main(arguments: list[str]) -> int:
    only = [argument for argument in arguments if argument.isdigit()]
    names = [argument for argument in arguments if argument in CONFIGURATIONS] or list(
        CONFIGURATIONS
    )
    if unknown := set(arguments) - set(only) - set(names):
        raise SystemExit(
            f"No configuration is called {unknown.pop()!r}; there are"
            f" {', '.join(CONFIGURATIONS)}."
        )
    if torch.version.cuda is not None:
        raise SystemExit(
            "A pretend GPU needs the CPU build of torch, whose empty places for CUDA it"
            " fills."
        )
    OUT.mkdir(parents=True, exist_ok=True)
    lines = {"CPU", "T4"} <= set(names) and not only
    failed = sum(rehearse(name, only, lines=lines) for name in names)
    share = report(names) if lines else 1.0
    return int(failed > 0 or share < LEAST_SHARE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
