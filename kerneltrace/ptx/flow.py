"""The blocks of a kernel's code, in an order in which threads that part meet again as
early as they can.

Threads always run on at the earliest place where one is. In this order a place where
paths meet comes after all of them, all of a loop comes before what follows the loop,
and who begins a loop's next turn waits at a latch at its end for those who are still in
this one: so threads meet again at the immediate post-dominator, as on a GPU (Fung et
al., Dynamic Warp Formation, 2007). Loops are found as F. Bourdoncle does (Efficient
chaotic iteration strategies, 1993).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from kerneltrace.log.needs import Needs, Waits, chained
from kerneltrace.ptx.text import Function, Instruction

EXIT = -1
WORD = re.compile(r"[%$\w.]+")
_ENDS = ("bra", "brx", "ret", "exit", "bar", "barrier")


@dataclass
class Block:
    """Instructions that are executed together, and where it goes on: places in the
    order of blocks, or EXIT.
    """

    code: list[Instruction] = field(default_factory=list)
    end: Instruction | None = None
    """The branch, barrier or return at its end."""
    targets: list[int] = field(default_factory=list)
    """The next place; after a conditional branch, that where it is
    taken comes first.
    """
    latch_of: int | None = None
    """Where it is a latch, the place where the loop begins."""
    loops: tuple[int, ...] = ()
    """The places at which the loops around it begin, the outermost first."""
    last_line: int = 0


def blocks_of(function: Function) -> list[Block]:
    """The blocks of a function in the order of places; the first is where it begins."""
    blocks, labels = _split(function)
    successors = [
        _successors(i, block, labels, function, len(blocks))
        for i, block in enumerate(blocks)
    ]
    order: list[int] = []

    def arrange(nodes: set[int], around: tuple[int, ...]) -> None:
        inner = {
            node: [s for s in successors[node] if s in nodes and s not in around]
            for node in nodes
        }
        for part in _components(inner):
            head = part[0]
            order.append(head)
            blocks[head].loops = around
            if len(part) > 1 or head in inner[head]:
                blocks[head].loops = (*around, head)
                arrange(set(part) - {head}, (*around, head))
                order.append(len(blocks))
                for node in part:
                    successors[node] = [
                        len(blocks) if s == head else s for s in successors[node]
                    ]
                blocks.append(Block(latch_of=head, loops=(*around, head)))
                successors.append([head])

    arrange(
        set(_postorder([0], lambda node: [s for s in successors[node] if s != EXIT])),
        (),
    )
    place = {number: at for at, number in enumerate(order)} | {EXIT: EXIT}
    for number in order:
        block = blocks[number]
        block.targets = [place[s] for s in successors[number]]
        block.loops = tuple(place[head] for head in block.loops)
        block.latch_of = None if block.latch_of is None else place[block.latch_of]
    return [blocks[number] for number in order]


def _split(function: Function) -> tuple[list[Block], dict[str, int]]:
    blocks = [Block()]
    labels = {}
    for item in function.code:
        if isinstance(item, str):
            if blocks[-1].code or blocks[-1].end:
                blocks.append(Block())
            labels[item] = len(blocks) - 1
            continue
        if blocks[-1].end:
            blocks.append(Block())
        if item.name in _ENDS and item.parts[:1] != ("warp",):
            blocks[-1].end = item
        else:
            blocks[-1].code.append(item)
        blocks[-1].last_line = item.line or blocks[-1].last_line
    return blocks, labels


def _successors(
    number: int, block: Block, labels: dict[str, int], function: Function, many: int
) -> list[int]:
    end = block.end
    after = number + 1 if number + 1 < many else EXIT
    if end is None or end.name in ("bar", "barrier"):
        return [after]
    if end.name == "brx":
        return [labels[label] for label in function.tables[end.operands[1]]]
    goes_to = EXIT if end.name in ("ret", "exit") else labels[end.operands[0]]
    return [goes_to, after] if end.guard else [goes_to]


def _postorder(
    begin: Iterable[int], following: Callable[[int], list[int]]
) -> list[int]:
    finished: list[int] = []
    seen: set[int] = set()
    for root in begin:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(following(root)))]
        while path:
            node, rest = path[-1]
            for other in rest:
                if other not in seen:
                    seen.add(other)
                    path.append((other, iter(following(other))))
                    break
            else:
                finished.append(node)
                path.pop()
    return finished


def _components(graph: dict[int, list[int]]) -> list[list[int]]:
    """The strongly connected parts, each after those that lead to it, its first node at
    its head (Kosaraju).
    """
    order = _postorder(sorted(graph), graph.__getitem__)[::-1]
    back: dict[int, list[int]] = {node: [] for node in graph}
    for node, following in graph.items():
        for other in following:
            back[other].append(node)
    rank = {node: i for i, node in enumerate(order)}
    parts: list[list[int]] = []
    done: set[int] = set()
    for node in order:
        if node not in done:
            part = _postorder(
                [node], lambda one: [other for other in back[one] if other not in done]
            )
            done.update(part)
            parts.append(sorted(part, key=rank.__getitem__))
    return parts


def waits_of_loads(function: Function) -> dict[int, Waits]:
    """What each load waits for, by the identity of its instruction; in a loop also for
    what decides on another turn.
    """
    needs = Needs(set)
    depth = Counter[Hashable]()
    levels = dict[int, int]()
    labels = {one: i for i, one in enumerate(function.code) if isinstance(one, str)}
    for i, one in enumerate(function.code):
        if isinstance(one, str) or not one.operands:
            continue
        target, *read = [set(WORD.findall(text)) for text in (*one.operands, one.guard)]
        sources: set[Hashable] = set().union(*read)
        if one.name == "bra":
            for each in function.code[labels.get(one.operands[-1], i) : i]:
                needs[id(each)] |= sources
        if one.name == "ld" and "param" not in one.parts:
            needs[id(one)] |= sources
            levels[id(one)] = max((depth[word] for word in sources), default=0)
            depth[id(one)] = levels[id(one)] + 1
            sources = {id(one)}
        for word in target if one.name not in ("st", "red", "bra") else ():
            needs[word] |= sources
            depth[word] = max((depth[source] for source in sources), default=0)
    return {one: (level, chained(one, needs)) for one, level in levels.items()}
