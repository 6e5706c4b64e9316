"""Whether registers hold floats or integers, by what computes them and what they are
used for: loads and stores alone move bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from kerneltrace.ptx.text import Function, Instruction, words_of
from kerneltrace.ptx.values import TYPES

FLOAT = "f"
INTEGER = "i"
UNKNOWN = ""
BITS = "b"
"""Of a float, put together from integers."""
_EXPONENT = 20
"""Places by which a shift puts something into a float's exponent, not into an index."""
_FLOATS = {kind for kind, dtype in TYPES.items() if dtype.kind == "f"}
_FLOATS |= {"bf16", "f16x2", "bf16x2"}
_COUNTING = ("add", "sub", "mul", "mad", "popc", "div", "rem")
"""On integers: what nobody does with the bits of a float."""
_BITWISE = ("and", "or", "xor", "shl", "shr")
_ATOMICS = {"add", "inc", "dec"}


class Kinds:
    """What the registers of a function hold."""

    def __init__(self, function: Function, kind_of_array: Callable[[str], str]) -> None:
        """`kind_of_array` says it of the array that an operand `[%rd1]` points to."""
        self._kind_of_array = kind_of_array
        self._makers = defaultdict[str, list[Instruction]](list)
        self._users = defaultdict[str, list[Instruction]](list)
        for item in function.code:
            if isinstance(item, str) or not item.operands:
                continue
            for word in words_of(item.operands[0]):
                self._makers[word].append(item)
            for operand in item.operands[1:]:
                for word in words_of(operand):
                    self._users[word].append(item)

    def of(self, instruction: Instruction) -> str:
        """What a load, a store or an atomic takes memory for."""
        if _is_float(instruction):
            return FLOAT
        if instruction.name in ("atom", "red"):
            return UNKNOWN if _ATOMICS.isdisjoint(instruction.parts) else INTEGER
        if instruction.name == "st":
            kinds = {self._made(word) for word in words_of(instruction.operands[1])}
            return kinds.pop() if kinds in ({FLOAT}, {INTEGER}) else UNKNOWN
        for word in words_of(instruction.operands[0]):
            if any(map(_counts, self._users[word])):
                return INTEGER
        return UNKNOWN

    def _made(self, word: str, around: tuple[str, ...] = ()) -> str:
        """What a register holds by all instructions that write it."""
        if word.startswith(("%tid", "%ctaid", "%ntid", "%nctaid", "%laneid")):
            return INTEGER
        makers = [
            maker
            for maker in self._makers[word]
            if maker.name != "mov" or maker.operands[1][0] == "%" or _is_float(maker)
        ]
        if word in around or not makers:
            return UNKNOWN
        kinds = {self._makes(maker, (*around, word)) for maker in makers}
        return kinds.pop() if len(kinds) == 1 else UNKNOWN

    def _makes(self, maker: Instruction, around: tuple[str, ...]) -> str:
        sources = maker.operands[1:]
        if maker.name == "cvt":
            into, out_of = (part for part in maker.parts if part in TYPES)
            if into in _FLOATS:
                return FLOAT
            return INTEGER if out_of in _FLOATS else self._made(sources[0], around)
        if _is_float(maker):
            return FLOAT
        if maker.name == "ld":
            if "param" in maker.parts:
                return INTEGER if maker.parts[-1] in ("u32", "s32") else UNKNOWN
            return self._kind_of_array(sources[0])
        if maker.name == "shl" and sources[1].isdigit() and int(sources[1]) > _EXPONENT:
            return BITS
        if maker.name == "mov" or maker.name in _BITWISE:
            kind = self._made(sources[0], around)
            return kind if maker.name == "mov" or kind == INTEGER else UNKNOWN
        if _counts(maker):
            kinds = {self._made(word, around) for word in sources if word[0] == "%"}
            return BITS if kinds & {FLOAT, BITS} else INTEGER
        return UNKNOWN


def _is_float(instruction: Instruction) -> bool:
    return instruction.kind in _FLOATS


def _counts(instruction: Instruction) -> bool:
    """Whether it is arithmetic on integers."""
    if instruction.name == "cvt":
        into, out_of = (part for part in instruction.parts if part in TYPES)
        return into in _FLOATS and out_of not in _FLOATS
    return instruction.name in _COUNTING and not _is_float(instruction)
