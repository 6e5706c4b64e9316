"""The pytest plugin: with KERNELTRACE=1 in the environment, kernels of numba.cuda run
on the CPU, and a launch with a mistake fails its test.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

MOST_REASONS = 10
"""How many kernels that weren't traced the summary names."""
_PLUGIN = "kerneltrace launches"


class _Simulation:
    """The simulation of a whole run of pytest."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        # tests skip by this setting what numba's simulator lacks; it may stay for them,
        # but mustn't be set while numba.cuda is imported
        setting = os.environ.pop("NUMBA_ENABLE_CUDASIM", "")
        numba_config: Any = sys.modules.get("numba.core.config")
        if numba_config:  # pytest imports numba before plugins for `filterwarnings`
            numba_config.reload_config()
        from kerneltrace.simulator.simulation import simulate, simulator_setting

        self.launches = self._stack.enter_context(simulate(warn=False))
        if setting not in ("", "0"):
            os.environ["NUMBA_ENABLE_CUDASIM"] = setting
            self._stack.enter_context(simulator_setting())

    def pytest_unconfigure(self) -> None:
        self._stack.close()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        launches = self.launches
        untraced = launches.untraced
        terminalreporter.section("kerneltrace")
        terminalreporter.line(
            f"{launches.traced:,} launches traced, {untraced.total():,} not;"
            f" {len(launches.faults):,} faults found"
        )
        for fault in _first_of_each_place(launches.faults):
            terminalreporter.line(fault)
        for suspect in _first_of_each_place(launches.suspects):
            terminalreporter.line(f"without effect: {suspect}")
        for reason, count in untraced.most_common(MOST_REASONS):
            terminalreporter.line(f"not traced, {count:,} times: {reason}")
        more = len(untraced) - MOST_REASONS
        if more > 0:
            terminalreporter.line(f"not traced: {more:,} more kernels")


def _first_of_each_place(lines: list[str]) -> list[str]:
    """The first line about each file, line, kernel and kind of finding."""
    first: dict[str, str] = {}
    for line in lines:
        first.setdefault(line.partition("]")[0], line)
    return list(first.values())


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Begin before anything of the project is imported."""
    _begin(early_config.pluginmanager)


def pytest_configure(config: Any) -> None:
    """Begin where the plugin was loaded too late for the other hook."""
    _begin(config.pluginmanager)


def _begin(plugins: Any) -> None:
    is_wanted = os.environ.get("KERNELTRACE", "") not in ("", "0")
    if is_wanted and not plugins.has_plugin(_PLUGIN):
        plugins.register(_Simulation(), _PLUGIN)


class CudaFile:
    """A kernel of a `.cu` file, launched as numba's are:
    `kernel[grid, block, stream, shared_bytes](*args)`.
    """

    def __init__(
        self, launches: Any, path: Path, name: str, constants: Mapping[str, Any]
    ) -> None:
        self._launches = launches
        self._path = path
        self._name = name
        self._constants = constants

    def __getitem__(self, config: Any) -> Callable[..., Any]:
        from kerneltrace.simulator.launches import launch_cuda_cpp

        def launch(*args: Any) -> Any:
            """Run it; the trace of the launch."""
            return launch_cuda_cpp(
                self._launches,
                self._path,
                self._name,
                self._constants,
                config,
                args,
            )

        return launch


@pytest.fixture
def cuda_cpp(request: pytest.FixtureRequest) -> Callable[..., CudaFile]:
    """A function (path, name="", constants={}) that gives a kernel of a `.cu` file,
    whose path is taken from the test's folder.

    Its launches take NumPy arrays and scalars, need no GPU, and raise KernelFault for a
    mistake; `name` picks one of several kernels, and `constants` are the arrays that
    the host copies to __constant__ and __device__ variables, by name.
    """
    from kerneltrace.simulator.launches import SimulatedLaunches

    simulation = request.config.pluginmanager.get_plugin(_PLUGIN)
    launches = simulation.launches if simulation else SimulatedLaunches()

    def kernel(
        path: str | Path, name: str = "", constants: Mapping[str, Any] | None = None
    ) -> CudaFile:
        file = request.path.parent / path
        return CudaFile(launches, file, name, constants or {})

    return kernel
