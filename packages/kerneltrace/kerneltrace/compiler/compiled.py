"""Read a compiler's output: registers, spills and memory from its log and object file;
PTX instructions.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from kerneltrace._arguments import text
from kerneltrace._tables import ShownAsTable, Table
from kerneltrace.errors import CompileError

_MAX_BLOCK = 1024  # threads, on every GPU since compute capability 2.0
# a block: the object file counts what the system reserves from capability 9.0 on
_RESERVED_SHARED_BYTES = 1024
_FUNCTION = re.compile(
    r"Function properties for (\S+)\n(.*?)(?=Function properties for|\Z)", re.DOTALL
)
_OPCODE = re.compile(
    r"(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:(?:\.|::)[a-z0-9_]+)*)(?:\s|$)"
)
_DIRECTIVE_LINE = re.compile(r"^\s*\.(?:loc|file|section|pragma)\b.*$", re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{;]*)\{", re.DOTALL)


@dataclass(frozen=True)
class KernelResources:
    """What one thread and one block of a kernel use, as the assembler reports it.

    `registers`, stack and spills are for one thread; `shared_bytes`, without dynamic
    shared memory, for one block. `constant_bytes` are those of `__constant__` variables
    and tables; `max_threads` what launch bounds allow, or 1,024.
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    constant_bytes: int
    max_threads: int


@dataclass(frozen=True, repr=False)
class Compiled(ShownAsTable):
    """A compiled module: its PTX, and the resources of each kernel by name.

    `compute_capability` is what it was compiled for, and `why` says how that was
    chosen.
    """

    ptx: str
    compute_capability: tuple[int, int]
    kernels: dict[str, KernelResources]
    why: str = ""
    source: dict[int, str] = field(default_factory=dict)
    """Lines of the source by their numbers, as far as they are known."""
    parameters: tuple[str, ...] = ()
    """Names of the parameters of a kernel that was written in Python."""
    left_out: tuple[str, ...] = ()
    """What of the source was not compiled, since it is the host's, in sentences."""
    instances: dict[str, str] = field(default_factory=dict)
    """The symbols of instances of templates, such as "sum<256>"."""

    @property
    def only(self) -> KernelResources:
        """The resources of the only kernel; ValueError where there are several."""
        if len(self.kernels) != 1:
            raise ValueError(
                f"Expected one kernel, got {len(self.kernels)}:"
                f" {', '.join(self.kernels)}. Name one: result.kernels[name]."
            )
        return next(iter(self.kernels.values()))

    @property
    def registers(self) -> int:
        """Registers a thread of the only kernel; ValueError where
        there are several.
        """
        return self.only.registers

    def instructions(self, pattern: str = "*") -> dict[str, int]:
        """Count the module's PTX instructions by opcode, most frequent first:
        {"fma.rn.f32": 32, "ld.global.f32": 2}.

        `pattern` selects opcodes: "*" is any text, so "ld.*" are the loads.
        Instructions are counted as written, not as executed: a loop's body counts once,
        unless the compiler unrolled it. PTX has no registers assigned yet, so a
        register cap shows in `kernels`, not here. Source: PTX ISA, "Instruction
        Statements".
        """
        pattern = text("pattern", pattern)
        opcodes = [code for code in _opcodes(self.ptx) if fnmatchcase(code, pattern)]
        counts = Counter(opcodes)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def table(self) -> Table:
        """A row for each kernel."""
        fields = {
            "spill stores": "spill_store_bytes",
            "spill loads": "spill_load_bytes",
            "stack": "stack_bytes",
            "shared": "shared_bytes",
            "constant": "constant_bytes",
        }
        headings = ("kernel", "registers", *fields, "max threads")
        rows = tuple(
            (
                kernel,
                str(resources.registers),
                *(f"{getattr(resources, name)} B" for name in fields.values()),
                str(resources.max_threads),
            )
            for kernel, resources in self.kernels.items()
        )
        major, minor = self.compute_capability
        note = f" ({self.why})" if self.why else ""
        title = f"Compiled for compute capability {major}.{minor}{note}"
        return Table(rows, headings, title, self.left_out)


def compiled(
    ptx: str, log: str, cubin: bytes, *, compute_capability: tuple[int, int], why: str
) -> Compiled:
    """Read a compiler's output into a Compiled; CompileError for a log that leaves out
    a kernel.

    Registers, stack and spills come from the assembler's log (option -v); shared and
    constant memory from the object file's sections, since the log leaves out what is
    declared outside of a kernel. Source: CUDA Binary Utilities, and `cuobjdump
    --dump-resource-usage`, which shows the same numbers.
    """
    entries = {match[1]: match[3] for match in _ENTRY.finditer(ptx)}
    sizes = dict(_sections(cubin))
    reserved = _RESERVED_SHARED_BYTES if compute_capability >= (9, 0) else 0
    kernels = {}
    for symbol, report in _FUNCTION.findall(log):
        if symbol not in entries:  # a device function that was not inlined
            continue
        bound = re.search(r"\.(?:max|req)ntid\s+([\d,\s]+)", entries[symbol])
        kernels[symbol] = KernelResources(
            registers=_number(r"Used (\d+) registers", report),
            spill_store_bytes=_number(r"(\d+) bytes spill stores", report),
            spill_load_bytes=_number(r"(\d+) bytes spill loads", report),
            stack_bytes=_number(r"(\d+) bytes stack frame", report),
            shared_bytes=max(0, sizes.get(f".nv.shared.{symbol}", 0) - reserved),
            constant_bytes=sizes.get(".nv.constant3", 0)
            + sizes.get(f".nv.constant2.{symbol}", 0),
            max_threads=(
                math.prod(map(int, bound[1].split(","))) if bound else _MAX_BLOCK
            ),
        )
    if set(kernels) != set(entries):
        missing = ", ".join(sorted(set(entries) - set(kernels)))
        raise CompileError(
            "Expected the assembler's log to report on each kernel, got nothing on"
            f" {missing}: {log}"
        )
    names = [_short_name(symbol) for symbol in kernels]
    by_name = {
        name if names.count(name) == 1 else symbol: resources
        for name, (symbol, resources) in zip(names, kernels.items(), strict=True)
    }
    return Compiled(ptx, compute_capability, by_name, why)


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    if match is None:
        raise CompileError(f"Expected {pattern!r} in the assembler's log, got: {text}")
    return int(match[1])


def _short_name(symbol: str) -> str:
    """The plain function name of a C++ symbol such as _Z4copyPfi."""
    match = re.match(r"_Z(\d+)(\w+)", symbol)
    return match[2][: int(match[1])] if match else symbol


def _opcodes(ptx: str) -> Iterator[str]:
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)
    for statement in re.split(r"[;{}]", _DIRECTIVE_LINE.sub("", bare)):
        if match := _OPCODE.match(re.sub(r"^\s*(?:[\w$]+:\s*)*", "", statement)):
            yield match[1]


def _sections(cubin: bytes) -> Iterator[tuple[str, int]]:
    """Name and size in bytes of each section of a 64-bit little-endian ELF file.
    Source: ELF-64 Object File Format.
    """
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise CompileError(
            "Expected a 64-bit ELF file from the compiler, got one that starts with"
            f" {cubin[:6]!r}."
        )
    (table,) = struct.unpack_from("<Q", cubin, 40)
    width, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    headers = [
        struct.unpack_from("<IIQQQQ", cubin, table + width * i) for i in range(count)
    ]
    names = headers[names_at][4]
    for name, _, _, _, _, size in headers:
        start = names + name
        yield cubin[start : cubin.index(b"\0", start)].decode(), size
