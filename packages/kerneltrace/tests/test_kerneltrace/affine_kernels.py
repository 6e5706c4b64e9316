"""Random kernels whose indices are affine in threads, blocks, sizes and turns of loops,
and whether two of their threads meet, by brute force.
"""

import linecache
from collections import defaultdict
from types import SimpleNamespace

from numba import cuda, float32

from kerneltrace.proof.walker import conflict

TERMS = (
    *("t", "i", "i", "b * bd", "b", "k", "n", "{c}"),
    *("t * {c}", "i * {c}", "b * {c}", "k * {c}", "k * bd", "k * gd * bd", "t * n"),
    *(
        "t // {c}",
        "t % {c}",
        "i // {c}",
        "i % {c}",
        "n - 1 - i",
        "63 - t",
        "min(i, {c})",
    ),
    *("(i + k) % {c}", "max(t - {c}, 0)", "(t >> 1)", "(i & 3)", "half", "t + half"),
)
GUARDS = (
    *("if i < n", "if t < {c}", "if t == 0", "if b == 0", "if t % {c} == 0"),
    *("if i + {c} < n", "if t >= {c} and i < n", "if t > 0", "if t == 0 or i >= n"),
    *(
        "if x[i] > 0",
        "if k == t",
        "if n > {c}",
        "if t < half",
        "if t % (2 * half) == 0",
    ),
)
LOOPS = (
    *("for k in range({c})", "for k in range(n)", "for k in range({c}, n, 2)"),
    *("for k in range(i, n, gd * bd)", "for k in range(t, {c}, bd)", "while half > 0"),
    "for k in range(1, n)",
)
LAUNCHES = tuple(
    (block, grid, n) for block in (1, 2, 4, 5) for grid in (1, 2, 3) for n in (1, 4, 7)
)
"""Threads of a block, blocks, n."""


class Meets(Exception):
    """Two threads may be at one element at once, or a launch isn't defined."""


def kernel(draw):
    """A random kernel's source."""
    lines = ["t = cuda.threadIdx.x", "b = cuda.blockIdx.x", "bd = cuda.blockDim.x"]
    lines += ["gd = cuda.gridDim.x", "i = cuda.grid(1)", "k = 0"]
    lines += ["s = cuda.shared.array(64, float32)", f"half = {draw.choice((1, 2, 4))}"]
    if draw.random() < 0.2:
        lines += [
            f"{draw.choice(GUARDS[:6]).format(c=draw.randint(1, 4))}:",
            "    return",
        ]
    for _ in range(draw.choice((1, 1, 2, 3))):
        lines += _statements(draw, 2)
    return "\n    ".join(["def k(x, y, n):", *lines, ""])


def _index(draw):
    parts = draw.choices(TERMS, k=draw.choice((1, 1, 1, 2, 2, 3)))
    return " + ".join(part.format(c=draw.randint(1, 4)) for part in parts)


def _statements(draw, depth):
    """An access, or a barrier, or some of them under a guard or in a loop."""
    kind = draw.random()
    if not depth or kind < 0.45:
        return [_access(draw)]
    if kind < 0.55:
        return ["cuda.syncthreads()"]
    heads = GUARDS if kind < 0.8 else LOOPS
    head = draw.choice(heads).format(c=draw.randint(1, 4))
    body = [
        line
        for _ in range(draw.choice((1, 2, 2)))
        for line in _statements(draw, depth - 1)
    ]
    if head.startswith("while"):
        body.append("half //= 2" if ">" in head else "half *= 2")
    if head.startswith(("while", "for")) and draw.random() < 0.3:
        body.append("cuda.syncthreads()")
    return [f"{head}:", *(f"    {line}" for line in body)]


def _access(draw):
    array = draw.choice("xxss")
    at, other = _index(draw), _index(draw)
    return draw.choice(
        (
            f"{array}[{at}] = 1",
            f"{array}[{at}] += 1",
            f"{array}[{at}] = {array}[{at} + {draw.choice(('half', 'bd', 'n', '1'))}]",
            f"{array}[{at}] = {array}[{other}]",
            f"y[i] = {array}[{other}]",
            f"cuda.atomic.add({array}, {at}, 1)",
        )
    )


def defined(source, name):
    """The kernel of a source, kept where IPython keeps its cells."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {"cuda": cuda, "float32": float32}
    exec(compile(source, name, "exec"), scope)
    return scope["k"]


class Log:
    """An array that notes who accesses it: `accesses` has (thread, phase, kind) by
    block and element.
    """

    def __init__(self, run, is_shared):
        self.run = run
        self.is_shared = is_shared
        self.accesses = defaultdict(set)
        self.wrapped = set()

    def note(self, kind, at):
        run = self.run
        run.steps += 1
        if run.steps > 5000:
            raise Meets
        place = (run.block, at) if self.is_shared else at
        access = run.block, run.thread, run.phase, kind
        self.accesses[place].add(access)
        if at < 0:
            self.wrapped.add(access)

    def __getitem__(self, at):
        self.note("load", at)
        return 1

    def __setitem__(self, at, value):
        self.note("store", at)

    def check(self):
        """Raise Meets for two accesses that conflict; one whose index is below 0 may be
        to any element.
        """
        for accesses in self.accesses.values():
            everyone = accesses | self.wrapped
            stores = [access for access in everyone if access[3] != "load"]
            for mine in stores:
                for other in everyone:
                    if mine[:2] == other[:2] or not conflict(mine[3], other[3]):
                        continue
                    is_one_block = mine[0] == other[0]
                    if mine[2] == other[2] if is_one_block else not self.is_shared:
                        raise Meets


def check_by_force(function, block, grid, n):
    """Run a kernel thread by thread; Meets where two of them do."""
    run = SimpleNamespace(steps=0)
    x, y, s = Log(run, False), Log(run, False), Log(run, True)
    own = SimpleNamespace(
        atomic=SimpleNamespace(add=lambda array, at, _: array.note("atomic", at)),
        shared=SimpleNamespace(array=lambda *_: s),
        blockDim=SimpleNamespace(x=block),
        gridDim=SimpleNamespace(x=grid),
        grid=lambda _: run.block * block + run.thread,
    )

    def sync():
        run.phase += 1
        run.steps += 1

    own.syncthreads = sync
    scope = {**function.__globals__, "cuda": own}
    function = type(function)(function.__code__, scope)
    for run.block in range(grid):
        for run.thread in range(block):
            run.phase = 0
            own.threadIdx = SimpleNamespace(x=run.thread)
            own.blockIdx = SimpleNamespace(x=run.block)
            function(x, y, n)
    for log in (x, y, s):
        log.check()
