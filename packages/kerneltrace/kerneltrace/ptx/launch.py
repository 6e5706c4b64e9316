"""Run a compiled kernel: its PTX, with the arguments of a launch."""

from __future__ import annotations

import inspect
import itertools
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltrace._text import brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.machine.address_space import AddressSpace, SharedLayout
from kerneltrace.machine.diagnostics import Diagnostics
from kerneltrace.machine.event_log import SITES, EventLog
from kerneltrace.machine.execution import Execution, LaunchSettings
from kerneltrace.machine.program import Program
from kerneltrace.machine.traced_memory import TracedArray
from kerneltrace.ptx.decode import Decoder
from kerneltrace.ptx.interpreter import Interpreter
from kerneltrace.ptx.memory import Memory, plain_name
from kerneltrace.ptx.text import Function, inlined, read_ptx

_TYPES = {
    "float": "f4",
    "double": "f8",
    **dict.fromkeys(("int", "unsigned", "unsigned int"), "i4"),
    **dict.fromkeys(("long long", "unsigned long long"), "i8"),
}
_IDENTIFIER = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)?(?:=[^,]*)?$")


class Kernel:
    """A kernel of a PTX text, and the source that it was compiled from."""

    def __init__(
        self,
        ptx: str,
        name: str,
        source: Mapping[int, str],
        parameters: Sequence[str] = (),
        shared_bytes: int = 0,
        hidden: int = 0,
        constants: Collection[str] = (),
    ) -> None:
        """`name` is the kernel's name in PTX or in C++; it may be empty where there is
        one kernel.

        `parameters` are the names of those that a launch gives, if the source does not
        show them as C++ does. The kernel needs dynamic `shared_bytes` whatever the
        launch gives, and its last `hidden` parameters are 0. Those in `constants` were
        compiled in.
        """
        self.source = source
        self.shared_bytes = shared_bytes
        self._hidden = hidden
        self._constants = constants
        module = read_ptx(ptx)
        entries = [
            entry
            for entry in re.findall(r"\.entry\s+([\w$]+)", ptx)
            if entry in module.functions
        ]
        matching = [entry for entry in entries if name in ("", entry)]
        if not matching:
            mangled = f"{len(name)}{name}"
            matching = [
                entry
                for entry in entries
                if entry.startswith("_Z") and mangled in entry
            ]
        if len(matching) != 1:
            kernels = ", ".join(map(plain_name, entries)) or "no kernel"
            raise KernelError(
                f"Expected name to be that of one of the kernels, got {name!r}. There"
                f" is {kernels}."
            )
        self._function: Function = inlined(module, matching[0])
        words = set(self._function.words)
        self._variables = (
            *(variable for variable in module.variables if variable.name in words),
            *self._function.variables,
        )
        self.name = name or plain_name(matching[0])
        # the types of the parameters in C++, where the source shows them
        self._declared: dict[str, str] = {}
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
        text = re.sub(
            r"//[^\n]*|/\*.*?\*/", "", "\n".join(self.source.values()), flags=re.DOTALL
        )
        for match in re.finditer(rf"\b{re.escape(self.name)}\s*\(([^()]*)\)", text):
            parts = [_IDENTIFIER.search(part.strip()) for part in match[1].split(",")]
            if len(parts) == len(self._function.parameters) and all(parts):
                self._declared = {
                    part[1]: " ".join(part.string[: part.start()].split())
                    for part in parts
                    if part
                }
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

        An `order` puts the numbers of threads into the order of their atomics; there is
        nothing to `watch` here.
        """
        log = EventLog(settings.max_events, settings.max_steps)
        diagnostics = Diagnostics(
            settings.where,
            lambda key: program.sites[key % SITES].line,
            log.current_thread,
        )
        space = AddressSpace(
            log.add, diagnostics.out_of_bounds, diagnostics.unset_local
        )
        program = Program(log, space.constant, diagnostics.divided_by_zero)
        execution = Execution(
            settings,
            log,
            program,
            diagnostics,
            space,
            SharedLayout(settings.shared_bytes),
        )
        placed = {
            name: space.argument(value, name)
            for name, value in arguments.values.items()
        }
        self._check(placed)
        parameters, pointers = self._parameters(placed)
        memory = Memory(execution, self._variables)
        decoder = Decoder(
            execution, memory, self._function, parameters, pointers, self.source
        )
        Interpreter(decoder, stores_once=self._hidden > 0).run(
            order and (lambda numbers: np.array(order(numbers.tolist()), int))
        )
        memory.finish()
        return execution

    def _check(self, placed: dict[str, Any]) -> None:
        """KernelError for an array of other numbers than the kernel takes, or for a
        number in the place of one.
        """
        for name, declared in self._declared.items():
            plain = re.sub(r"\b(const|volatile|__restrict__)\b|\*", "", declared)
            expected = _TYPES.get(plain.strip())
            if expected is None:
                continue
            argument = placed[name]
            if isinstance(argument, TracedArray):
                dtype = argument.array.dtype
                letter = dtype.kind.replace("u", "i")
                is_right = "*" in declared and expected == f"{letter}{dtype.itemsize}"
                passed = f"an array of {dtype}"
            else:
                is_right = "*" not in declared
                passed = "a number"
            if not is_right:
                raise KernelError(
                    f"{self.name} takes {declared} for {name!r}, got {passed}."
                )

    def _parameters(
        self, placed: dict[str, Any]
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """The bytes of each parameter, and the arrays to which the parameters at each
        offset point.
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
            for value in _leaves(tuple(placed.values()))
            if isinstance(value, TracedArray)
        }
        contents = {}
        pointers = {}
        for parameter, (name, value) in zip(parameters, parts, strict=True):
            bytes_ = contents[parameter] = _bytes(name, value, *parameters[parameter])
            if isinstance(value, np.uint64) and name:
                pointers[f"{parameter}+0"] = name
            if not isinstance(value, tuple):
                continue
            for offset in range(0, len(bytes_), 8):  # pointers in a struct
                base = int.from_bytes(bytes_[offset : offset + 8], "little")
                if base in bases:
                    pointers[f"{parameter}+{offset}"] = bases[base]
        return contents, pointers


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _struct(value: tuple[Any, ...], size: int) -> bytes | None:
    """A struct by value, with numbers of 4 bytes where these give its size, else of 8;
    None where neither does.
    """
    for whole, real in itertools.product("48", repeat=2):
        contents = b""
        for part in map(_pointer, _leaves(value)):
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
