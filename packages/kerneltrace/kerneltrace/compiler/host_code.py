"""Leave host code out of CUDA C++, as nvcc does for a GPU: NVRTC says which of a file's
declarations it can't take, and those without __global__, __device__ or __constant__ go.

A function becomes a deleted one where C++ allows that, so that device code that calls
it is still an error, and no other function is called in its place. A class goes as a
whole or stays, so that no layout changes; specializations of templates stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import IntEnum
from typing import NamedTuple

_MASKED = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?\*/"  # comments
    r'|R"(?P<raw>[^()\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"'  # texts
    r"|(?<=\d)'(?=\d)|'(?:\\.|[^'\\\n])*'"  # 1'000, characters
    r"|(?m:^)[ \t]*\#(?:\\\n|[^\n])*",  # directives
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)(?:\\\n|[^\n])*", re.MULTILINE)
_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"].*', re.MULTILINE
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.MULTILINE)
_ON_DEVICE = r"__global__|__device__|__constant__|__managed__"
_CLASS = re.compile(r"\b(class|struct|union)\b")
_SPECIALIZED = re.compile(r"template\s*<\s*>|\b(?:class|struct|union)\s+[\w:]+\s*<")
_IS_PART_OF_CLASS = re.compile(r"\bvirtual\b|~|\boperator\s*=[^=]")
_NAME = re.compile(r"operator\s*[^\w\s]+|~?\w+(?=\s*\(|\s*(?:\[[^\]]*\]\s*)*$)")
_LAUNCH = re.compile(r"([A-Za-z_][\w:]*\s*<[^<>;(){}]+>)\s*<<<")


class DeclarationKind(IntEnum):
    """What a declaration is."""

    SCOPE = 0  # a namespace, or extern "C" { }
    CLASS = 1
    FUNCTION = 2
    OTHER = 3


class Stage(IntEnum):
    """What became of a declaration."""

    ON_DEVICE = 0  # a constexpr function: either side may call it
    DELETED = 1
    GONE = 2


class Declaration(NamedTuple):
    """A declaration by the places in the text where it begins, where its head and
    where itself ends.
    """

    begin: int
    head: int
    end: int
    kind: DeclarationKind
    parts: tuple[Declaration, ...] = ()


class SourceFile:
    """A file of CUDA C++, and what of it was left out."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._masked = _masked(text)
        macros = [match[1] for match in _MACRO.finditer(text) if _is_device(match[2])]
        self._device = re.compile(rf"\b(?:{'|'.join([_ON_DEVICE, *macros])})\b")
        self._declarations = tuple(_declarations(self._masked, 0, len(text)))
        self._stages: dict[Declaration, Stage] = {}
        self._headers: dict[str, tuple[int, int]] = {}

    def include(self, name: str) -> bool:
        """Leave out the directives that include a header; whether there were any."""
        spans = {
            match[2]: match.span()
            for match in _INCLUDE.finditer(self.text)
            if match[2] == name and name not in self._headers
        }
        self._headers |= spans
        return bool(spans)

    def leave_out(self, errors: Collection[tuple[int, int, str]]) -> bool:
        """Leave out the declarations to which errors belong, by their line, column and
        words; whether there were any.
        """
        places = [(self._place(line, column), words) for line, column, words in errors]
        changes: dict[Declaration, Stage] = {}
        for place, words in places:
            path = self._path_to(place)
            while path and path[-1].kind is not DeclarationKind.SCOPE:
                declaration = path.pop()
                # a head that names unknown types can't be that of a deleted function
                is_in_head = place < declaration.head and "host" not in words
                stage = self._next_stage(declaration, path, is_in_head)
                if stage is not None:
                    changes[declaration] = max(stage, changes.get(declaration, stage))
                    break
                if not path or path[-1].kind is not DeclarationKind.CLASS:
                    break
        self._stages |= changes
        return bool(changes)

    def _next_stage(
        self, declaration: Declaration, around: list[Declaration], is_in_head: bool
    ) -> Stage | None:
        """What can become of a declaration inside of others; None for nothing."""
        masked = self._masked
        head = masked[declaration.begin : declaration.head]
        stage = self._stages.get(declaration)
        in_class = bool(around) and around[-1].kind is DeclarationKind.CLASS
        if stage is Stage.GONE or _SPECIALIZED.search(head):
            return None
        if declaration.kind is not DeclarationKind.FUNCTION:
            whole = masked[declaration.begin : declaration.end]
            return None if in_class or self._device.search(whole) else Stage.GONE
        if self._device.search(head):
            return None
        if stage is None and re.search(r"\bconstexpr\b", head):
            return Stage.ON_DEVICE
        is_deletable = not re.search(
            r"\)[^()]*=|\bmain\s*\(|\w\s*::\s*[~\w]+\s*\(", head
        )
        if stage is None and is_deletable and not is_in_head:
            return Stage.DELETED
        if in_class and (_IS_PART_OF_CLASS.search(head) or self._makes(head, around)):
            return None
        return Stage.GONE

    def _makes(self, head: str, around: list[Declaration]) -> bool:
        """Whether a member function is a constructor."""
        class_head = self._masked[around[-1].begin : around[-1].head]
        name = re.search(r"([~\w]+)\s*\(", head)
        return bool(name and re.search(rf"\b{re.escape(name[1])}\b", class_head))

    def _place(self, line: int, column: int) -> int:
        """The place in the text of a line and column of what `remaining` gave."""
        lines = self.remaining().splitlines(keepends=True)[:line]
        before = sum(map(len, lines[:-1]))
        column = min(column, max(len(lines[-1]) - 1, 0)) if lines else 0
        place = before + column
        for begin, end, new in self._edits():
            if begin >= place:
                break
            place = max(begin, place - len(new) + end - begin)
        return place

    def _path_to(self, place: int) -> list[Declaration]:
        """The declarations around a place, from the outermost; the next one in the line
        where none is.
        """
        path: list[Declaration] = []
        level = self._declarations
        line_end = self.text.find("\n", place)
        while True:
            around = [each for each in level if each.begin <= place < each.end]
            if not around and not path:
                around = [each for each in level if place <= each.begin < line_end]
            if not around:
                return path
            path.append(around[0])
            level = around[0].parts

    def _edits(self) -> list[tuple[int, int, str]]:
        """The places that change, in their order, and what stands there instead, with
        as many lines.
        """
        edits = []
        for begin, end in self._headers.values():
            edits.append((begin, end, _blank(self.text[begin:end])))
        for declaration, stage in self._outermost():
            begin, head, end, _, _ = declaration
            if stage is Stage.GONE:
                edits.append((begin, end, _without_code(self.text[begin:end])))
                continue
            prefix = "" if self._masked.startswith("template", begin) else "__device__ "
            at = begin
            if stage is Stage.ON_DEVICE:
                at = self._masked.index("constexpr", begin)
                prefix = "__device__ "
            host = self._masked.find("__host__", begin, head)
            edits.append((at, at, prefix))
            if host >= 0:
                edits.append((host, host + len("__host__"), ""))
            if stage is Stage.DELETED:
                body = _without_code(self.text[head:end])
                edits.append((head, end, f" = delete;{body}"))
        return sorted(edits)

    def _outermost(self) -> list[tuple[Declaration, Stage]]:
        """What became of the declarations that are in none that is gone."""
        gone = [each for each, stage in self._stages.items() if stage is Stage.GONE]
        return [
            (each, stage)
            for each, stage in sorted(self._stages.items())
            if not any(
                other.begin <= each.begin and each.end <= other.end and other != each
                for other in gone
            )
        ]

    def remaining(self) -> str:
        """The text without what was left out, with as many lines."""
        parts = []
        last = 0
        for begin, end, new in self._edits():
            parts += [self.text[last:begin], new]
            last = end
        return "".join([*parts, self.text[last:]])

    def launched(self) -> set[str]:
        """Instances of templates that the host code launches, such as "sum<256>"."""
        launches = set()
        for declaration, stage in self._stages.items():
            if stage is not Stage.ON_DEVICE:
                code = self._masked[declaration.begin : declaration.end]
                launches |= set(_LAUNCH.findall(code))
        return launches

    def left_out(self) -> list[str]:
        """What was left out: headers, and declarations with their lines."""
        words = [f"#include of {name}" for name in self._headers]
        for declaration, stage in self._outermost():
            if stage is Stage.ON_DEVICE:
                continue
            head = self._masked[declaration.begin : declaration.head]
            name = _NAME.search(head.partition("=")[0].strip())
            first = self.text.count("\n", 0, declaration.begin) + 1
            last = self.text.count("\n", 0, declaration.end) + 1
            lines = f"line {first}" if first == last else f"lines {first} to {last}"
            words.append(f"{name[0] if name else 'a declaration'} ({lines})")
        return words


def included(text: str) -> Iterator[tuple[str, bool]]:
    """The names of the headers that a text includes, and whether in quotes."""
    for match in _INCLUDE.finditer(text):
        yield match[2], match[1] == '"'


def _is_device(text: str) -> bool:
    return re.search(rf"\b(?:{_ON_DEVICE})\b", text) is not None


def _blank(text: str) -> str:
    """As many blanks and lines as in a text."""
    return re.sub(r"[^\n]", " ", text)


def _without_code(text: str) -> str:
    """As many lines as in a text, with its directives: #if and #endif go by pairs."""
    parts = []
    last = 0
    for match in _DIRECTIVE.finditer(text):
        parts += [_blank(text[last : match.start()]), match[0]]
        last = match.end()
    return "".join([*parts, _blank(text[last:])])


def _masked(text: str) -> str:
    """A text of the same length, without comments, texts, characters and directives,
    and of branches of #if without those that open other braces than the first.
    """
    masked = _MASKED.sub(lambda match: _blank(match[0]), text)
    opened: list[int] = []  # where the branch of each #if begins
    unlike: list[tuple[int, int]] = []
    is_unlike: list[bool] = []
    for match in _DIRECTIVE.finditer(text):
        word = match[1]
        if word in ("if", "ifdef", "ifndef"):
            opened.append(match.end())
            is_unlike.append(False)
        elif opened and word in ("else", "elif", "endif"):
            branch = masked[opened[-1] : match.start()]
            if is_unlike[-1]:
                unlike.append((opened[-1], match.start()))
            is_unlike[-1] |= branch.count("{") != branch.count("}")
            opened[-1] = match.end()
            if word == "endif":
                opened.pop()
                is_unlike.pop()
    for begin, end in unlike:
        masked = masked[:begin] + _blank(masked[begin:end]) + masked[end:]
    return masked


def _declarations(masked: str, begin: int, end: int) -> Iterator[Declaration]:
    """The declarations between two places."""
    place = begin
    while place < end:
        skipped = re.compile(r"\s+|;|(?:public|private|protected)\s*:(?!:)").match(
            masked, place, end
        )
        if skipped:
            place = skipped.end()
            continue
        declaration = _declaration(masked, place, end)
        yield declaration
        place = declaration.end


def _declaration(masked: str, begin: int, end: int) -> Declaration:
    """The declaration that begins at a place."""
    place = begin
    depth = 0  # of parentheses
    head = 0  # where a body or an initializer begins
    parts: tuple[Declaration, ...] = ()
    kind = DeclarationKind.OTHER
    while place < end:
        letter = masked[place]
        place += 1
        depth += (letter in "([") - (letter in ")]")
        if depth or letter not in ";{:=":
            continue
        text = masked[begin : place - 1]
        if letter == ";":
            head = head or place - 1
            kind = (
                DeclarationKind.FUNCTION
                if kind is DeclarationKind.OTHER and _is_function(text)
                else kind
            )
            return Declaration(begin, head, place, kind, parts)
        if letter == ":" and text.rstrip().endswith(")") and not head:
            head = place - 1  # of what a constructor initializes
        if letter != "{":
            continue
        body = place
        place = _closing(masked, place, end)
        own_head = head or body - 1
        if re.match(r"\s*(inline\s+)?namespace\b|extern\s*$", text):
            inner = tuple(_declarations(masked, body, place - 1))
            return Declaration(begin, own_head, place, DeclarationKind.SCOPE, inner)
        if _is_class(text):
            kind = DeclarationKind.CLASS
            head = own_head
            parts = tuple(_declarations(masked, body, place - 1))
        elif _is_function(text) and not re.match(r"\s*[,{]", masked[place:end]):
            return Declaration(begin, own_head, place, DeclarationKind.FUNCTION)
    return Declaration(begin, head or end, end, kind, parts)


def _is_function(text: str) -> bool:
    """Whether the text before a body or a semicolon is the head of a function."""
    plain = re.sub(r"\b(?:alignas|__align__|__attribute__|decltype)\s*\(", "", text)
    before = re.split(r"(?<![=!<>])=(?!=)", plain)[0]
    is_operator = re.search(r"\boperator\b", plain)
    is_type = re.match(r"\s*(typedef|using|enum|static_assert)\b", plain)
    return "(" in (plain if is_operator else before) and not is_type


def _is_class(text: str) -> bool:
    plain = re.sub(r"\b(?:alignas|__align__|__attribute__)\s*\([^()]*\)", "", text)
    plain = re.sub(r"template\s*<[^{}()]*?>\s*(?=\w)", "", plain)
    is_enum = re.match(r"\s*enum\b", plain)
    return bool(_CLASS.search(plain)) and not is_enum and not re.search("[(=]", plain)


def _closing(masked: str, place: int, end: int) -> int:
    """The place behind the brace that closes the one before a place."""
    depth = 1
    for match in re.compile(r"[{}]").finditer(masked, place, end):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.end()
    return end
