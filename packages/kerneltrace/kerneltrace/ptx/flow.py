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

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from kerneltrace.machine.needs import Needs, Waits, chained
from kerneltrace.ptx.text import WORD, Function, Instruction

EXIT = -1
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
        """Put nodes in order, each loop among them with a latch at its end."""
        inner = {
            node: [s for s in successors[node] if s in nodes and s not in around]
            for node in nodes
        }
        for part in _components(inner):
            head = part[0]
            order.append(head)
            blocks[head].loops = around
            if len(part) == 1 and head not in inner[head]:
                continue
            blocks[head].loops = (*around, head)
            arrange(set(part) - {head}, (*around, head))
            latch = len(blocks)
            order.append(latch)
            for node in part:
                successors[node] = [latch if s == head else s for s in successors[node]]
            blocks.append(Block(latch_of=head, loops=(*around, head)))
            successors.append([head])

    reached = _postorder([0], lambda node: [s for s in successors[node] if s != EXIT])
    arrange(set(reached), ())
    place = {node: i for i, node in enumerate(order)} | {EXIT: EXIT}
    for node in order:
        block = blocks[node]
        block.targets = [place[s] for s in successors[node]]
        block.loops = tuple(place[head] for head in block.loops)
        if block.latch_of is not None:
            block.latch_of = place[block.latch_of]
    return [blocks[node] for node in order]


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
    number: int, block: Block, labels: dict[str, int], function: Function, count: int
) -> list[int]:
    end = block.end
    after = number + 1 if number + 1 < count else EXIT
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
            for successor in rest:
                if successor not in seen:
                    seen.add(successor)
                    path.append((successor, iter(following(successor))))
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
    for node, successors in graph.items():
        for successor in successors:
            back[successor].append(node)
    rank = {node: i for i, node in enumerate(order)}
    parts: list[list[int]] = []
    placed: set[int] = set()

    for node in order:
        if node not in placed:
            part = _postorder(
                [node], lambda at: [b for b in back[at] if b not in placed]
            )
            placed.update(part)
            parts.append(sorted(part, key=rank.__getitem__))
    return parts


def waits_of_loads(function: Function) -> dict[int, Waits]:
    """What each load waits for, by the identity of its instruction; in a loop also for
    what decides on another turn.
    """
    needs = Needs(set)
    depth = Counter[Hashable]()
    levels = dict[int, int]()
    code = function.code
    labels = {item: i for i, item in enumerate(code) if isinstance(item, str)}
    for i, instruction in enumerate(code):
        if isinstance(instruction, str) or not instruction.operands:
            continue
        target, *operands = (_words(operand) for operand in instruction.operands)
        sources: set[Hashable] = _words(instruction.guard).union(*operands)
        if instruction.name == "bra":
            begin = labels.get(instruction.operands[-1], i)
            for item in code[begin:i]:  # of the loop, where it goes back
                needs[id(item)] |= sources
        if instruction.name == "ld" and "param" not in instruction.parts:
            load = id(instruction)
            needs[load] |= sources
            levels[load] = max((depth[word] for word in sources), default=0)
            depth[load] = levels[load] + 1
            sources = {load}
        if instruction.name not in ("st", "red", "bra"):
            for word in target:
                needs[word] |= sources
                depth[word] = max((depth[source] for source in sources), default=0)
    return {load: (level, chained(load, needs)) for load, level in levels.items()}


def _words(text: str) -> set[Hashable]:
    return set(WORD.findall(text))
