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
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

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
_OWN = re.compile(r"\.reg\s*\.\w+\s+([^;<]*);|(?:^|[;{}])\s*([\w$]+)\s*:(?!:)")
_INSTRUCTION = re.compile(
    r"(?:@(!?)(%?[\w$]+)\s+)?([a-z]\w*)((?:(?:\.|::)\w+)*)\s*(.*)", re.DOTALL
)
_OPERAND = re.compile(r"<[^>]*>|\[[^\]]*\]|\([^()]*\)|[^,<\[(\s]+")
_LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_WORD = re.compile(r"[%$\w]+(?:\.[xyz]\b)?")
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
    """The predicate under which it is executed, if any."""
    unless: bool = False
    """Whether that predicate has to be false."""

    @property
    def opcode(self) -> str:
        """The whole name: `ld.global.v2.f32`."""
        return ".".join((self.name, *self.parts))

    @property
    def predicate(self) -> str:
        """The guard as an operand: `!%p1` where it has to be false."""
        return f"!{self.guard}" if self.unless else self.guard


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
    """A kernel or a device function; a label stands in its code as a text."""

    name: str
    returned: tuple[str, ...]
    parameters: dict[str, tuple[str, int]]
    """The type of each, and its bytes."""
    code: tuple[Instruction | str, ...]
    registers: dict[str, str]
    """The type of each name, or, for `%r<33>`, of all that begin with `%r`."""
    variables: tuple[Variable, ...]
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels that an indexed branch jumps to."""

    @property
    def words(self) -> list[str]:
        """All that its operands name."""
        return [
            word
            for item in self.code
            if isinstance(item, Instruction)
            for operand in item.operands
            for word in _WORD.findall(operand)
        ]


@dataclass(frozen=True)
class Module:
    """A PTX text."""

    functions: dict[str, Function]
    variables: tuple[Variable, ...]


@functools.lru_cache(maxsize=8)
def read_ptx(ptx: str) -> Module:
    """Read the functions and variables of a PTX text."""
    text = _without_noise(ptx)
    functions = {}
    outside = []  # of functions
    begin = 0
    for head in _FUNCTION.finditer(text):
        end = _closing_brace(text, head.end())
        name = head[2]
        functions[name] = _function(
            name,
            tuple(_parameters(head[1])),
            _parameters(head[3]),
            text[head.end() : end],
        )
        outside.append(text[begin : head.start()])
        begin = end + 1
    outside.append(text[begin:])
    variables = [
        variable
        for part in outside
        for statement in part.split(";")
        if (variable := _variable(statement))
    ]
    return Module(functions, tuple(variables))


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


def _function(
    name: str,
    returned: tuple[str, ...],
    parameters: dict[str, tuple[str, int]],
    body: str,
) -> Function:
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
            tables[labels.pop()] = tuple(_WORD.findall(rest)[1:])
        elif declared:
            for word in declared[2].split(","):
                registers[word.strip().split("<")[0]] = declared[1]
        elif variable := _variable(rest):
            variables.append(variable)
        code += labels
        if instruction := _instruction(rest, line):
            code.append(instruction)
    return Function(
        name, returned, parameters, tuple(code), registers, tuple(variables), tables
    )


def _instruction(statement: str, line: int) -> Instruction | None:
    match = _INSTRUCTION.fullmatch(statement)
    if match is None or statement.startswith("."):
        return None
    negated, guard, name, suffixes, operands = match.groups("")
    return Instruction(
        name,
        tuple(re.split(r"\.|::", suffixes))[1:],
        tuple(_OPERAND.findall(operands)),
        line,
        guard,
        bool(negated),
    )


def _renamed(block: str, number: int) -> str:
    """What stands in a block `{ }`, its own registers and labels under names that no
    other block has.
    """
    own = {
        name.strip()
        for match in _OWN.finditer(block)
        for name in (match[1] or match[2]).split(",")
    }

    def renamed(match: re.Match[str]) -> str:
        return f"{match[0]}${number}b" if match[0] in own else match[0]

    return f";{_WORD.sub(renamed, block)};"


def _line(match: re.Match[str], own_file: str) -> int:
    """The line of the kernel's own file that a location stands for: in a header's
    function, that of the call.
    """
    if match[1] == own_file:
        return int(match[2])
    return int(match[4]) if match[3] == own_file else 0


def inlined(module: Module, name: str) -> Function:
    """A kernel with the functions that it calls put into their places; KernelError for
    one that calls itself.
    """
    function = module.functions[name]
    registers = dict(function.registers)
    tables = dict(function.tables)
    variables = list(function.variables)
    numbers = itertools.count(1)

    def expanded(
        body: Function, calling: tuple[str, ...]
    ) -> Iterator[Instruction | str]:
        for item in body.code:
            called = _called(item, module)
            if called is None or isinstance(item, str):
                yield item
                continue
            if called.name in calling:
                raise KernelError(
                    f"Line {item.line}: {called.name} calls itself, which"
                    " kerneltrace can't follow. Write it as a loop."
                )
            copy, after = _copied(called, item, next(numbers))
            registers.update(copy.registers)
            tables.update(copy.tables)
            variables.extend(copy.variables)
            yield from expanded(copy, (*calling, called.name))
            yield after

    return replace(
        function,
        code=tuple(expanded(function, (name,))),
        registers=registers,
        tables=tables,
        variables=tuple(variables),
    )


def _called(item: Instruction | str, module: Module) -> Function | None:
    if isinstance(item, str) or item.name != "call":
        return None
    for operand in item.operands:
        for word in _WORD.findall(operand):
            if word in module.functions:
                return module.functions[word]
    return None


def _copied(called: Function, call: Instruction, number: int) -> tuple[Function, str]:
    """A function as it stands in the place of one call, and the label after it."""
    groups = [_WORD.findall(operand) for operand in call.operands]
    name_at = groups.index([called.name])
    arguments = groups[name_at + 1] if name_at + 1 < len(groups) else []
    results = groups[0] if name_at else []
    passed: dict[str, str] = dict(zip(called.parameters, arguments, strict=True))
    passed |= dict(zip(called.returned, results, strict=False))
    own_names = {item for item in called.code if isinstance(item, str)}
    own_names |= called.registers.keys() | called.tables.keys()
    own_names |= {variable.name for variable in called.variables}
    after = f"after${number}"

    def new(name: str) -> str:
        if name in passed:
            return passed[name]
        if name in own_names or name.rstrip("0123456789") in called.registers:
            return f"%{number}${name[1:]}" if name[0] == "%" else f"{name}${number}"
        return name

    def in_copy(item: Instruction | str) -> Instruction | str:
        if isinstance(item, str):
            return new(item)
        guard = new(item.guard)
        if item.name == "ret":
            return replace(item, name="bra", parts=(), operands=(after,), guard=guard)
        operands = tuple(
            _WORD.sub(lambda match: new(match[0]), operand) for operand in item.operands
        )
        return replace(
            item, operands=operands, guard=guard, line=call.line or item.line
        )

    copy = replace(
        called,
        code=tuple(map(in_copy, called.code)),
        registers={new(name): kind for name, kind in called.registers.items()},
        tables={
            new(name): tuple(map(new, labels)) for name, labels in called.tables.items()
        },
        variables=tuple(
            replace(variable, name=new(variable.name)) for variable in called.variables
        ),
    )
    return copy, after
