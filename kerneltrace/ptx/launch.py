"""Run a compiled kernel: its PTX, with the arguments of a launch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from kerneltrace.arguments import brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.log.address_space import AddressSpace, SharedLayout
from kerneltrace.log.diagnostics import Diagnostics
from kerneltrace.log.event_log import SITES, EventLog
from kerneltrace.log.execution import Execution, LaunchSettings
from kerneltrace.log.program import Program
from kerneltrace.log.traced_memory import TracedArray
from kerneltrace.ptx.machine import Machine
from kerneltrace.ptx.memory import Memory
from kerneltrace.ptx.text import Function, inlined, read_ptx
from kerneltrace.ptx.threads import Order

_IDENTIFIER = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)?(?:=[^,]*)?$")


class Kernel:
    """A kernel of a PTX text, and the source that it was compiled from."""

    def __init__(self, ptx: str, name: str, source: dict[int, str]) -> None:
        """`name` is the kernel's name in PTX or in C++; it may be empty where there is one kernel."""
        self.source = source
        module = read_ptx(ptx)
        entries = [entry for entry in re.findall(r"\.entry\s+([\w$]+)", ptx) if entry in module.functions]
        chosen = [entry for entry in entries if name in ("", entry)] or [
            entry for entry in entries if entry.startswith("_Z") and f"{len(name)}{name}" in entry
        ]
        if len(chosen) != 1:
            known = ", ".join(map(_plain, entries)) or "no kernel"
            raise KernelError(f"Expected name to be one of the kernels, got {name!r}. The code has {known}.")
        self.function: Function = inlined(module, chosen[0])
        self.name = name or _plain(chosen[0])
        self.variables = (*module.variables, *self.function.variables)

    def parameter_names(self) -> list[str]:
        """The names of its parameters in C++, or in PTX where the source does not show them."""
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", "\n".join(self.source.values()), flags=re.DOTALL)
        for match in re.finditer(rf"\b{re.escape(self.name)}\s*\(", text):
            depth, end = 1, match.end()
            while depth and end < len(text):
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            parts = [_IDENTIFIER.search(part.strip()) for part in text[match.end() : end - 1].split(",")]
            if len(parts) == len(self.function.parameters) and all(parts):
                return [part[1] for part in parts if part]
        return list(self.function.parameters)

    def run(self, settings: LaunchSettings, values: dict[str, Any], order: Order | None = None) -> Execution:
        """Run all threads of a launch; `values` are arrays and numbers by the names of the parameters."""
        log = EventLog(settings.max_events, settings.max_steps)
        diagnostics = Diagnostics(settings.where, lambda key: program.sites[key % SITES].line, log.current_thread)
        space = AddressSpace(log.add, diagnostics.out_of_bounds, diagnostics.unset_local)
        program = Program(log, space.constant, diagnostics.divided_by_zero)
        execution = Execution(settings, log, program, diagnostics, space, SharedLayout(settings.shared_bytes))
        placed = {name: space.argument(value, name) for name, value in values.items()}
        parameters, pointers = self._parameters(placed)
        memory = Memory(execution, self.variables)
        Machine(execution, memory, self.function, parameters, pointers, self.source).run(order)
        memory.finish()
        return execution

    def _parameters(self, placed: dict[str, Any]) -> tuple[dict[str, bytes], dict[str, str]]:
        """The bytes of each parameter, and the arrays to which the parameters at each offset point."""
        parameters, flat = self.function.parameters, []
        for name, value in placed.items():
            flat += [(name, part) for part in _numba_parts(value)]
        if len(parameters) != len(flat):  # C++ takes an array as a pointer
            flat = [(name, np.uint64(value.base) if isinstance(value, TracedArray) else value) for name, value in placed.items()]
        if len(flat) != len(parameters):
            raise KernelError(f"{self.name} takes {len(parameters)} arguments, got {len(placed)}.")
        pointers = {
            f"{parameter}+0": name for parameter, (name, value) in zip(parameters, flat, strict=True)
            if isinstance(value, np.uint64) and isinstance(placed[name], TracedArray)
        }  # fmt: skip
        given = zip(parameters.items(), flat, strict=True)
        return {parameter: _bytes(name, value, *kind) for (parameter, kind), (name, value) in given}, pointers


def _numba_parts(value: Any) -> list[Any]:
    """An argument as numba's kernels take it: of an array its owner, sizes, address, shape and strides."""
    if not isinstance(value, TracedArray):
        return [value]
    array = value.array
    return [0, 0, array.size, array.itemsize, np.uint64(value.base), *array.shape, *array.strides]


def _bytes(name: str, value: Any, kind: str, size: int) -> bytes:
    is_number = isinstance(value, bool | int | float | np.integer | np.floating)
    if is_number and kind[0] == "f":
        return np.array(value, f"f{size}").tobytes()
    if isinstance(value, bool | int | np.integer):
        return int(int(value) % 2 ** (8 * size)).to_bytes(size, "little")
    if isinstance(value, np.generic) and value.nbytes == size:
        return value.tobytes()
    raise KernelError(f"The kernel takes {size} bytes ({kind}) for {name!r}, which {brief_repr(value)} is not.")


def _plain(entry: str) -> str:
    """The name of a function in C++ whose name in PTX is mangled."""
    match = re.match(r"_Z(\d+)", entry)
    return entry[match.end() : match.end() + int(match[1])] if match else entry


def source_lines(text: str) -> dict[int, str]:
    """The lines of a source by their numbers, from 1 on."""
    return {number: line.strip() for number, line in enumerate(text.splitlines(), 1)}


