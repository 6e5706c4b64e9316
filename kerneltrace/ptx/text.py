"""Read PTX: the functions of a module, their instructions with lines of the source, and
its variables.

Source: NVIDIA, Parallel Thread Execution ISA, "Syntax" and "State Spaces, Types, and
Variables".
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

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
_OWN = re.compile(r"\.reg\s*\.\w+\s+([^;<]*);|(?:^|[;{}])\s*([\w$]+)\s*:(?!:)")
_INSTRUCTION = re.compile(
    r"(?:@(!?)(%?[\w$]+)\s+)?([a-z]\w*)((?:(?:\.|::)\w+)*)\s*(.*)", re.DOTALL
)
_OPERAND = re.compile(r"<[^>]*>|\[[^\]]*\]|\([^()]*\)|[^,<\[(\s]+")
_LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_WORD = re.compile(r"[%$\w]+(?:\.[xyz]\b)?")
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
        texts = [
            text
            for one in self.code
            if isinstance(one, Instruction)
            for text in one.operands
        ]
        return [word for text in texts for word in _WORD.findall(text)]


@dataclass(frozen=True)
class Module:
    """A PTX text."""

    functions: dict[str, Function]
    variables: tuple[Variable, ...]


@functools.lru_cache(maxsize=8)
def read_ptx(ptx: str) -> Module:
    """Read the functions and variables of a PTX text."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)
    text = re.sub(r"\.section\s+\S+\s*\{.*?\}", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*(\.loc\s.*)$", r"\1;", text, flags=re.MULTILINE)
    text = re.sub(
        r"^\s*\.(file|version|target|address_size)\s.*$", "", text, flags=re.MULTILINE
    )
    # a vector; what stands in a block ends in semicolons
    text = re.sub(r"\{([^{};]*)\}", r"<\1>", text)
    functions = {}
    outside = []
    at = 0
    for head in _FUNCTION.finditer(text):
        end = head.end()
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        returned, parameters = (
            {
                name: (kind, _SIZES.get(kind, 8) * int(n or 1))
                for kind, name, n in _PARAMETER.findall(part or "")
            }
            for part in (head[1], head[3])
        )
        functions[head[2]] = _function(
            head[2], tuple(returned), parameters, text[head.end() : end - 1]
        )
        outside.append(text[at : head.start()])
        at = end
    outside.append(text[at:])
    variables = [
        _variable(statement) for part in outside for statement in part.split(";")
    ]
    return Module(functions, tuple(one for one in variables if one))


def _variable(statement: str) -> Variable | None:
    match = _VARIABLE.search(statement.strip())
    if match is None:
        return None
    space, align, kind, name, extents, value = match.groups()
    size = _SIZES[kind]
    counts = [int(n or 0) for n in re.findall(r"\[(\d*)\]", extents)]
    n_bytes = size * int(np.prod(counts, dtype=int)) if counts else size
    given = [_number(one) for one in re.findall(r"[-\w.]+", value or "")]
    initial = b"".join(
        int(one % (1 << 8 * size)).to_bytes(size, "little") for one in given
    )
    return Variable(space, name, int(align or size), n_bytes, initial)


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
        if match := _LOCATION.match(rest):
            own_file = own_file or match[1]
            line = _line(match, own_file) or line
        elif rest.startswith(".branchtargets"):
            tables[labels.pop()] = tuple(_WORD.findall(rest)[1:])
        elif match := _REGISTERS.match(rest):
            registers.update(
                {one.strip().split("<")[0]: match[1] for one in match[2].split(",")}
            )
        elif one := _variable(rest):
            variables.append(one)
        code += labels
        if not rest.startswith(".") and (match := _INSTRUCTION.fullmatch(rest)):
            negated, guard, opcode, parts, operands = match.groups("")
            split = tuple(re.split(r"\.|::", parts))[1:]
            code.append(
                Instruction(
                    opcode,
                    split,
                    tuple(_OPERAND.findall(operands)),
                    line,
                    guard,
                    bool(negated),
                )
            )
    return Function(
        name, returned, parameters, tuple(code), registers, tuple(variables), tables
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
    copies = iter(range(1, 1 << 30))

    def expanded(
        one: Function, calling: tuple[str, ...]
    ) -> Iterator[Instruction | str]:
        for item in one.code:
            called = _called(item, module)
            if called is None:
                yield item
                continue
            if called.name in calling:
                raise KernelError(
                    f"Line {item.line}: {called.name} calls itself, which"  # type: ignore[union-attr]
                    " kerneltrace can't follow. Write it as a loop."
                )
            copy, after = _copied(called, item, next(copies))  # type: ignore[arg-type]
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
    names = [word for operand in item.operands for word in _WORD.findall(operand)]
    return next(
        (module.functions[word] for word in names if word in module.functions), None
    )


def _copied(called: Function, call: Instruction, number: int) -> tuple[Function, str]:
    """A function as it stands in the place of one call, and the label after it."""
    groups = [_WORD.findall(operand) for operand in call.operands]
    at = groups.index([called.name])
    given = groups[at + 1] if at + 1 < len(groups) else []
    returned = groups[0] if at else []
    renamed = dict(zip(called.parameters, given, strict=True)) | dict(
        zip(called.returned, returned, strict=False)
    )
    own = (
        {item for item in called.code if isinstance(item, str)}
        | called.registers.keys()
        | called.tables.keys()
    )
    own |= {variable.name for variable in called.variables}

    def new(name: str) -> str:
        if name in renamed:
            return str(renamed[name])
        if name in own or name.rstrip("0123456789") in called.registers:
            return f"%{number}${name[1:]}" if name[0] == "%" else f"{name}${number}"
        return name

    def in_copy(item: Instruction | str) -> Instruction | str:
        if isinstance(item, str):
            return new(item)
        if item.name == "ret":
            return replace(
                item,
                name="bra",
                parts=(),
                operands=(f"after${number}",),
                guard=new(item.guard),
            )
        operands = tuple(
            _WORD.sub(lambda match: new(match[0]), operand) for operand in item.operands
        )
        return replace(
            item, operands=operands, guard=new(item.guard), line=call.line or item.line
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
    return copy, f"after${number}"
