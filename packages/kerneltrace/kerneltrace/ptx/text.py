"""Read PTX: the functions of a module, their instructions with lines of the source, and
its variables.

Source: NVIDIA, Parallel Thread Execution ISA, "Syntax" and "State Spaces, Types, and
Variables".
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kerneltrace.errors import KernelError
from kerneltrace.ptx.values import TYPES

_SIZES = {kind: dtype.itemsize for kind, dtype in TYPES.items()}
_FUNCTION = re.compile(
    r"\.(?:entry|func)\s*(?:\(([^()]*)\)\s*)?([\w$]+)\s*(?:\(([^()]*)\))?[^{};]*\{"
)
_VARIABLE = re.compile(
    r"\.(const|global|shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)((?:\[\d*\])*)(?:\s*=\s*([^;]*))?\s*$"
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)[^,]*?([\w$]+)(?:\[(\d+)\])?\s*(?:,|$)"
)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)", re.DOTALL)
# names that a block `{ }` declares
_OWN = re.compile(
    r"\.reg\s*\.\w+\s+([^;]*);|\.local\b[^;]*?([\w$]+)(?:\[\d*\])+\s*;"
    r"|(?:^|[;{}])\s*([\w$]+)\s*:(?!:)"
)
_CALL = re.compile(
    r"((?:^|[;{}:])\s*)call(?:\.uni)?\s*(?:\(([^()]*)\)\s*,)?\s*([\w$]+)\s*"
    r"(?:,\s*\(([^()]*)\)\s*)?;"
)
_RETURN = re.compile(r"\bret(?:\.uni)?\s*;")
_INSTRUCTION = re.compile(
    r"(?:@(!?%?[\w$]+)\s+)?([a-z]\w*)((?:(?:\.|::)\w+)*)\s*(.*)", re.DOTALL
)
_OPERAND = re.compile(r"<[^>]*>|\[[^\]]*\]|\([^()]*\)|[^,<\[(\s]+")
_LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_LOCATION_STATEMENT = re.compile(r"\.loc\s[^;]*;")
WORD = re.compile(r"[%$\w]+(?:\.[xyz]\b)?")
_BRACE = re.compile(r"[{}]")
_INNERMOST = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Instruction:
    """One instruction: `@!%p1 ld.global.v2.f32 {%f1, %f2}, [%rd1+8];`."""

    name: str
    parts: tuple[str, ...]
    operands: tuple[str, ...]
    line: int
    guard: str = ""
    """The predicate under which it is executed, if any; `!%p1` where it has to be
    false.
    """

    @property
    def opcode(self) -> str:
        """The whole name: `ld.global.v2.f32`."""
        return ".".join((self.name, *self.parts))

    @property
    def kind(self) -> str:
        """The type at the end of its name, `f32`, if there is one."""
        return self.parts[-1] if self.parts else ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """That type as NumPy's."""
        return TYPES[self.kind]


@dataclass(frozen=True)
class Variable:
    """A variable of a module or a function."""

    space: str
    name: str
    align: int
    n_bytes: int
    """0 for one whose size the launch gives: dynamic shared memory."""
    initial: bytes


@dataclass(frozen=True)
class Function:
    """A kernel with the functions that it calls; a label stands in its code as a
    text.
    """

    parameters: dict[str, tuple[str, int]]
    """The type of each, and its bytes."""
    code: tuple[Instruction | str, ...]
    registers: dict[str, str]
    """The type of each name, or, for `%r<33>`, of all that begin with `%r`."""
    variables: tuple[Variable, ...]
    tables: dict[str, tuple[str, ...]]
    """Labels that an indexed branch jumps to."""

    @property
    def words(self) -> list[str]:
        """All that its operands name."""
        return [
            word
            for item in self.code
            if isinstance(item, Instruction)
            for operand in item.operands
            for word in WORD.findall(operand)
        ]


class Definition(NamedTuple):
    """A function as it stands in a module."""

    returned: dict[str, tuple[str, int]]
    parameters: dict[str, tuple[str, int]]
    body: str


@dataclass(frozen=True)
class Module:
    """A PTX text."""

    functions: dict[str, Definition]
    variables: tuple[Variable, ...]

    def kernel(self, name: str) -> Function:
        """A kernel with the functions that it calls put into their places; KernelError
        for one that calls itself.
        """
        parameters = self.functions[name].parameters
        return _function(parameters, self._inlined(name, (), ""))

    def _inlined(self, name: str, calling: tuple[str, ...], line: str) -> str:
        """The body of a function that others call, one the other, in a line of the
        kernel.
        """
        calling = (*calling, name)

        def in_place(call: re.Match[str]) -> str:
            begin, results, called, arguments = call.groups("")
            if called not in self.functions:
                return call[0]
            line_here = line
            if not line:
                for location in _LOCATION.finditer(call.string, 0, call.start()):
                    line_here = location[2]
            if called in calling:
                raise KernelError(
                    f"Line {line_here}: {called} calls itself, which kerneltrace can't"
                    " follow. Write it as a loop."
                )
            definition = self.functions[called]
            names = [*definition.parameters, *definition.returned]
            passed = WORD.findall(f"{arguments} {results}")
            places = dict(zip(names, passed, strict=False))
            body = self._inlined(called, calling, line_here)
            # all of it stands in the line of the call
            body = _LOCATION_STATEMENT.sub("", body)
            body = _RETURN.sub("bra after_call;", body)
            body = WORD.sub(lambda word: places.get(word[0], word[0]), body)
            return f"{begin}{{{body}; after_call: }}"

        return _CALL.sub(in_place, self.functions[name].body)


@functools.lru_cache(maxsize=8)
def read_ptx(ptx: str) -> Module:
    """Read the functions and variables of a PTX text."""
    text = _without_noise(ptx)
    functions = {}
    outside = []  # of functions
    begin = 0
    for head in _FUNCTION.finditer(text):
        end = _closing_brace(text, head.end())
        functions[head[2]] = Definition(
            _parameters(head[1]), _parameters(head[3]), text[head.end() : end]
        )
        outside.append(text[begin : head.start()])
        begin = end + 1
    outside.append(text[begin:])
    statements = ";".join(outside).split(";")
    return Module(functions, tuple(filter(None, map(_variable, statements))))


def _without_noise(ptx: str) -> str:
    """A PTX text without comments and directives, whose locations are statements, and
    whose braces stand around blocks only.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)
    text = re.sub(r"\.section\s+\S+\s*\{.*?\}", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*(\.loc\s.*)$", r"\1;", text, flags=re.MULTILINE)
    text = re.sub(
        r"^\s*\.(file|version|target|address_size)\s.*$", "", text, flags=re.MULTILINE
    )
    # a vector; what stands in a block ends in semicolons
    return re.sub(r"\{([^{};]*)\}", r"<\1>", text)


def _closing_brace(text: str, begin: int) -> int:
    """The place of the brace that closes the block in which `begin` lies."""
    depth = 1
    for brace in _BRACE.finditer(text, begin):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.start()
    return len(text)


def _parameters(text: str | None) -> dict[str, tuple[str, int]]:
    """The type of each parameter, and its bytes."""
    return {
        name: (kind, _SIZES.get(kind, 8) * int(count or 1))
        for kind, name, count in _PARAMETER.findall(text or "")
    }


def _variable(statement: str) -> Variable | None:
    match = _VARIABLE.search(statement.strip())
    if match is None:
        return None
    space, align, kind, name, extents, value = match.groups()
    size = _SIZES[kind]
    counts = [int(count or 0) for count in re.findall(r"\[(\d*)\]", extents)]
    initial = b""
    for word in re.findall(r"[-\w.]+", value or ""):
        bits = _number(word) % (1 << 8 * size)
        initial += bits.to_bytes(size, "little")
    return Variable(space, name, int(align or size), size * math.prod(counts), initial)


def _number(word: str) -> int:
    if word[:2] in ("0f", "0d"):
        return int(word[2:], 16)
    try:
        return int(word.rstrip("U"), 0)
    except ValueError:
        return 0  # the address of another variable


def _function(parameters: dict[str, tuple[str, int]], body: str) -> Function:
    code: list[Instruction | str] = []
    registers: dict[str, str] = {}
    tables: dict[str, tuple[str, ...]] = {}
    variables = []
    line = 0
    own_file = ""
    blocks = itertools.count()
    while "{" in body:
        body = _INNERMOST.sub(lambda match: _renamed(match[1], next(blocks)), body)
    for statement in map(str.strip, body.split(";")):
        *labels, rest = re.split(r"(?<=[\w$])\s*:(?!:)\s*", statement)
        location = _LOCATION.match(rest)
        declared = _REGISTERS.match(rest)
        if location:
            own_file = own_file or location[1]
            line = _line(location, own_file) or line
        elif rest.startswith(".branchtargets"):
            tables[labels.pop()] = tuple(WORD.findall(rest)[1:])
        elif declared:
            for word in declared[2].split(","):
                registers[word.strip().split("<")[0]] = declared[1]
        elif variable := _variable(rest):
            variables.append(variable)
        code += labels
        if instruction := _instruction(rest, line):
            code.append(instruction)
    return Function(parameters, tuple(code), registers, tuple(variables), tables)


def _instruction(statement: str, line: int) -> Instruction | None:
    match = _INSTRUCTION.fullmatch(statement)
    if match is None or statement.startswith("."):
        return None
    guard, name, suffixes, operands = match.groups("")
    return Instruction(
        name,
        tuple(re.split(r"\.|::", suffixes))[1:],
        tuple(_OPERAND.findall(operands)),
        line,
        guard,
    )


def _renamed(block: str, number: int) -> str:
    """What stands in a block `{ }`, its own registers, variables and labels under names
    that no other block has.
    """
    own = {
        re.sub(r"\d+>$", "", name.strip())  # `%r<` of `%r<33>`
        for match in _OWN.finditer(block)
        for name in match[match.lastindex or 0].split(",")
    }

    def renamed(match: re.Match[str]) -> str:
        word = match[0]
        if word not in own and f"{word.rstrip('0123456789')}<" not in own:
            return word
        return f"%{number}${word[1:]}" if word[0] == "%" else f"{word}${number}"

    return f";{WORD.sub(renamed, block)};"


def _line(match: re.Match[str], own_file: str) -> int:
    """The line of the kernel's own file that a location stands for: in a header's
    function, that of the call.
    """
    if match[1] == own_file:
        return int(match[2])
    return int(match[4]) if match[3] == own_file else 0


def words_of(operand: str) -> list[str]:
    """The parts of a vector `<%r1, %r2>`, or the operand itself."""
    return [word.strip() for word in operand.strip("<>").split(",")]
