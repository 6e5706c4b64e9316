"""Run a compiled kernel: its PTX, with the arguments of a launch."""

from __future__ import annotations

import inspect
import itertools
import re
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltrace._text import brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.machine.diagnostics import Diagnostics
from kerneltrace.machine.execution import Execution, LaunchSettings, prepared
from kerneltrace.machine.traced_memory import TracedArray, leaves
from kerneltrace.ptx.decode import Decoder
from kerneltrace.ptx.handed_on import (
    as_cupy_hands_on,
    code_of,
    filled,
    has_code,
    report_unset,
    report_views,
    unset_variables,
    with_values,
    wrong_number,
)
from kerneltrace.ptx.interpreter import Interpreter
from kerneltrace.ptx.memory import GRID_BARRIER, Memory, plain_name
from kerneltrace.ptx.text import Function, Module, Variable, read_ptx

_IDENTIFIER = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)?(?:=[^,]*)?$")


class Kernel:
    """A kernel of a PTX text, and the source that it was compiled from."""

    registers = 0
    spill_bytes = 0
    """Of a thread, where a compiler says so; spills are stores and loads, each once."""
    left_out: tuple[str, ...] = ()
    """What of the source is the host's and was not compiled, in sentences."""

    def __init__(
        self,
        ptx: str,
        name: str,
        source: Mapping[int, str],
        parameters: Sequence[str] = (),
        shared_bytes: int = 0,
        hidden: int = 0,
        constants: Collection[str] = (),
        values: Mapping[str, Any] | None = None,
        by_cupy: bool = False,
    ) -> None:
        """`name` is the kernel's name in PTX or in C++; it may be empty where there is
        one kernel.

        `parameters` are the names of those that a launch gives, if the source does not
        show them as C++ does. The kernel needs dynamic `shared_bytes` whatever the
        launch gives, and its last `hidden` parameters are 0. Those in `constants` were
        compiled in. `values` are those of the module's variables that the host sets.
        Numbers are handed on as CuPy does it, `by_cupy`, or in the kernel's types.
        """
        self.source = source
        self.shared_bytes = shared_bytes
        self._hidden = hidden
        self._constants = constants
        self._by_cupy = by_cupy
        self._text = _without_comments("\n".join(source.values()))
        module = read_ptx(ptx)
        module_variables = with_values(module.variables, values or {}, self._text)
        entry = _entry(name, ptx, module)
        self._function: Function = module.kernel(entry)
        words = set(self._function.words)
        self._variables = (
            *(variable for variable in module_variables if variable.name in words),
            *self._function.variables,
        )
        if "%envreg1" in words:
            self._variables += (Variable("global", GRID_BARRIER, 8, 8, b""),)
        self.name = plain_name(name or entry)
        # the types of the parameters in C++, where the source shows them
        self._declared: dict[str, str] = {}
        self._line = 0
        """Of the kernel's name in its source."""
        self._names = list(parameters) or self._names_in_source()

    def signature(self) -> types.FunctionType:
        """A Python function with the kernel's name and parameters,
        which does nothing.
        """

        def kernel() -> None:
            pass

        kernel.__name__ = self.name
        # C++ may call an array `in`, which Python allows for a parameter that is given
        # by its position.
        parameters = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
            for name in self._names
        ]
        kernel.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return kernel  # type: ignore[return-value]  # a nested function is one

    def _names_in_source(self) -> list[str]:
        """The names of the parameters in C++, or in PTX where the source does not show
        them.
        """
        text = self._text
        for match in re.finditer(rf"\b{re.escape(self.name)}\s*\(([^()]*)\)", text):
            parts = [_IDENTIFIER.search(part.strip()) for part in match[1].split(",")]
            if len(parts) == len(self._function.parameters) and all(parts):
                self._declared = {
                    part[1]: " ".join(part.string[: part.start()].split())
                    for part in parts
                    if part
                }
                self._line = text.count("\n", 0, match.start()) + min(self.source)
                return list(self._declared)
        return list(self._function.parameters)

    def run(
        self,
        settings: LaunchSettings,
        arguments: Any,
        order: Any = None,
        watch: Any = None,
    ) -> Execution:
        """Run all threads of a launch. `arguments` has the `values` of the parameters
        by name.

        An `order` puts the numbers of threads into the order of their atomics; `watch`
        is told what is stored, where it takes that.
        """
        execution = prepared(settings)
        execution.program.is_triton = self._hidden > 0
        execution.program.registers = self.registers
        execution.program.spill_bytes = self.spill_bytes
        execution.log.on_store = getattr(watch, "stored", None)
        placed = {
            name: execution.memory.argument(value, name)
            for name, value in arguments.values.items()
        }
        self._check(placed)
        kinds = dict(zip(placed, arguments.types, strict=False))
        parameters, pointers = self._parameters(placed, kinds, execution.diagnostics)
        memory = Memory(execution, self._variables)
        decoder = Decoder(
            execution, memory, self._function, parameters, pointers, self.source
        )
        Interpreter(decoder, stores_once=self._hidden > 0).run(
            order and (lambda numbers: np.array(order(list(numbers)), int))
        )
        memory.finish()
        for variable in unset_variables(self._variables, self._text):
            report_unset(execution, memory.regions[variable.name])
        if self._declared:
            report_views(execution, self._line)
        return execution

    def _check(self, placed: dict[str, Any]) -> None:
        """KernelError for an array of other numbers than the kernel takes, or for a
        number in the place of one.
        """
        for name, declared in self._declared.items():
            expected = code_of(declared)
            if expected in ("", "b1", "i1"):  # bytes may be anything
                continue
            argument = placed[name]
            if isinstance(argument, TracedArray):
                dtype = argument.array.dtype
                is_right = "*" in declared and has_code(dtype, expected)
                passed = f"an array of {dtype}"
            else:
                is_right = "*" not in declared
                passed = "a number"
            if not is_right:
                raise KernelError(
                    f"{self.name} takes {declared} for {name!r}, got {passed}."
                )

    def _parameters(
        self, placed: dict[str, Any], kinds: dict[str, Any], diagnostics: Diagnostics
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """The bytes of each parameter, and the arrays to which the parameters at each
        offset point; `kinds` are numba's types of the arguments.
        """
        parameters = self._function.parameters
        placed = {
            name: value for name, value in placed.items() if name not in self._constants
        }
        parts = [
            part for name, value in placed.items() for part in _numba_parts(name, value)
        ]
        if len(parameters) != len(parts):  # C++ and Triton take an array as a pointer
            parts = [(name, _pointer(value)) for name, value in placed.items()]
            parts += [("", 0)] * self._hidden
        if len(parts) != len(parameters):
            raise KernelError(
                f"{self.name} takes {len(parameters)} parameters, got {len(placed)}."
            )
        bases = {
            value.base: value.name
            for value in leaves(tuple(placed.values()))
            if isinstance(value, TracedArray)
        }
        contents = {}
        pointers = {}
        for parameter, (name, value) in zip(parameters, parts, strict=True):
            kind, size = parameters[parameter]
            is_pointer = isinstance(value, np.uint64) and name
            if is_pointer:
                pointers[f"{parameter}+0"] = name
            if self._by_cupy and not is_pointer:
                number = as_cupy_hands_on(name, value, kinds[name])
                bytes_ = self._filled(name, number, kind, size, diagnostics)
            else:
                bytes_ = _bytes(name, value, kind, size)
            contents[parameter] = bytes_
            if not isinstance(value, tuple):
                continue
            for offset in range(0, len(bytes_), 8):  # pointers in a struct
                base = int.from_bytes(bytes_[offset : offset + 8], "little")
                if base in bases:
                    pointers[f"{parameter}+{offset}"] = bases[base]
        return contents, pointers

    def _filled(
        self, name: str, number: Any, kind: str, size: int, diagnostics: Diagnostics
    ) -> bytes:
        """The bytes of a parameter that gets a number of whatever type, which is
        reported where the kernel reads another number.
        """
        words = wrong_number(name, number, kind, size)
        if words:
            diagnostics.mistakes["argument", self._line, name] = [1, words, None]
        return filled(number, size)


def _without_comments(text: str) -> str:
    """A source in C++ with as many lines."""
    return re.sub(
        r"//[^\n]*|/\*.*?\*/",
        lambda comment: "\n" * comment[0].count("\n"),
        text,
        flags=re.DOTALL,
    )


def _entry(name: str, ptx: str, module: Module) -> str:
    """The kernel that a name in C++ or PTX stands for."""
    entries: list[str] = [
        entry
        for entry in re.findall(r"\.entry\s+([\w$]+)", ptx)
        if entry in module.functions
    ]
    matching = [entry for entry in entries if name in ("", entry)]
    if not matching:
        mangled = f"{len(name)}{name}"
        matching = [
            entry for entry in entries if entry.startswith("_Z") and mangled in entry
        ]
    if len(matching) != 1:
        kernels = ", ".join(map(plain_name, entries)) or "no kernel"
        raise KernelError(
            f"Expected name to be that of one of the kernels, got {name!r}. There is"
            f" {kernels}."
        )
    return matching[0]


def _struct(value: tuple[Any, ...], size: int) -> bytes | None:
    """A struct by value, with numbers of 4 bytes where these give its size, else of 8;
    None where neither does.
    """
    for whole, real in itertools.product("48", repeat=2):
        contents = b""
        for part in map(_pointer, leaves(value)):
            if isinstance(part, int):
                kind = f"i{whole}"
            elif isinstance(part, np.float64):
                kind = f"f{real}"
            else:
                kind = part.dtype
            item = np.array(part).astype(kind).tobytes()
            padding = bytes(-len(contents) % len(item))
            contents += padding + item
        if size in (_multiple(len(contents), 4), _multiple(len(contents), 8)):
            return contents.ljust(size, b"\0")
    return None


def _multiple(n: int, of: int) -> int:
    return -(-n // of) * of


def _pointer(value: Any) -> Any:
    return np.uint64(value.base) if isinstance(value, TracedArray) else value


def _numba_parts(name: str, value: Any) -> list[tuple[str, Any]]:
    """An argument as numba's kernels take it: of an array its owner, sizes, address,
    shape and strides.
    """
    if isinstance(value, tuple):
        return [
            pair
            for i, part in enumerate(value)
            for pair in _numba_parts(f"{name}[{i}]", part)
        ]
    if isinstance(value, np.complexfloating | complex):
        return [(name, value.real), (name, value.imag)]
    if not isinstance(value, TracedArray):
        return [(name, value)]
    array = value.array
    owner = (0, 0)
    sizes = (array.size, array.itemsize, np.uint64(value.base))
    parts = (*owner, *sizes, *array.shape, *array.strides)
    return [(value.name, part) for part in parts]


def _bytes(name: str, value: Any, kind: str, size: int) -> bytes:
    is_whole = isinstance(value, bool | int | np.integer)
    if kind[0] == "f" and (is_whole or isinstance(value, float | np.floating)):
        return np.array(value, f"f{size}").tobytes()
    if is_whole:
        bits = int(value) & ((1 << 8 * size) - 1)
        return bits.to_bytes(size, "little")
    if isinstance(value, np.generic) and value.nbytes == size and kind[0] == "b":
        return value.tobytes()
    struct = _struct(value, size) if isinstance(value, tuple) else None
    if struct is not None:
        return struct
    words = (
        f"The kernel takes {size} bytes ({kind}) for {name!r}, which"
        f" {brief_repr(value)} is not."
    )
    if kind[0] == "b" and size > 1:
        words += (
            " A struct is a tuple of its numbers and arrays, or a scalar of"
            " np.dtype([...], align=True)."
        )
    raise KernelError(words)
