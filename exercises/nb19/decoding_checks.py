"""Checks of notebook 19's engine: who joins a batch, which blocks of the cache a
sequence has, which drafted tokens are kept.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from labkit.core.arguments import is_whole
from labkit.core.display import brief_repr
from labkit.lesson.answers import as_list, parts, whole_numbers
from labkit.lesson.checks import NotYet, Todo, as_number, call, function, over_cases

BLOCK = 16


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK)


# 19.6a


def engine_rules(answer: object) -> str:
    """A pair, who joins a batch and where the cache keeps tokens; the first that isn't
    right is judged.
    """
    first, second = parts(answer, 2, "(admit, slots)")
    _named("admit", admit, first)
    try:
        _named("slots", slots, second)
    except Todo as todo:
        raise Todo(f"admit is right. {todo}") from todo
    return (
        "Both are right: nobody passes an earlier one, and no block is lost or has two"
        " owners."
    )


def _named(name: str, check: Callable[[object], str], answer: object) -> None:
    """Judge one of the two, and say which it is."""
    try:
        check(answer)
    except NotYet as wrong:
        raise NotYet(f"{name}: {wrong}", **wrong.details) from wrong


def admit(answer: object) -> str:
    """First come, first served, as far as places and blocks reach."""
    draw = random.Random(1906)
    cases: dict[str, tuple[list[int], int, int]] = {
        "nobody who waits": ([], 8, 4),
        "no free place": ([5, 5], 8, 0),
        "no free block": ([16], 0, 4),
        "one block for 17 tokens": ([17], 1, 4),
        "two full blocks each": ([32, 32, 32], 3, 4),
        "a block and a half each": ([24, 24], 3, 4),
        "a last block that just suffices": ([16, 32], 3, 8),
        "more requests than places": ([4] * 9, 50, 3),
        "a long request before short ones": ([20, 200, 20, 20], 8, 8),
        "a long request in front": ([200, 20], 8, 8),
    }
    for i in range(24):
        sizes = [draw.randrange(1, 120) for _ in range(draw.randrange(1, 12))]
        cases[f"draw {i}"] = (sizes, draw.randrange(24), draw.randrange(9))
    over_cases(answer, cases, _admit, _judge_admit)
    return "Right: in order of arrival, within the places and the blocks."


def _admit(sizes: list[int], free: int, places: int) -> int:
    joined = 0
    for tokens in sizes[:places]:
        free -= _blocks(tokens)
        if free < 0:
            break
        joined += 1
    return joined


def _judge_admit(
    got: object, right: int, given: str, sizes: list[int], free: int, places: int
) -> None:
    case = f"{given}, sizes = {sizes}, free = {free}, places = {places}"
    value = as_number(got, "(how many join)", case)
    if value == right:
        return
    otherwise = "In order of arrival: as long as there are a place and all its blocks."
    mistakes = _admit_mistakes(sizes, free, places)
    words = next((words for wrong, words in mistakes if value == wrong), otherwise)
    raise NotYet(f"For {case}: {value:g} join, and {right} can. {words}")


def _admit_mistakes(
    sizes: list[int], free: int, places: int
) -> list[tuple[float, str]]:
    """What plausible answers give, with what is wrong in each."""
    first = sizes[:places]
    needs = [_blocks(tokens) for tokens in sizes]
    fitting = 0
    left = free
    for tokens in sizes:
        if fitting < places and _blocks(tokens) <= left:
            left -= _blocks(tokens)
            fitting += 1
    whole = [tokens // BLOCK for tokens in first]
    exact = _prefix([tokens / BLOCK for tokens in first], free)
    return [
        (
            _prefix(needs, free),
            "The batch has no more than `places` free places.",
        ),
        (
            exact,
            "A block belongs to one sequence: round up for each request by itself.",
        ),
        (
            _prefix(whole, free),
            "A last block that isn't full is a block, too: round up.",
        ),
        (
            _prefix(needs[:places], free - 1),
            "The last free block may be taken, too.",
        ),
        (
            fitting,
            "A later one passes an earlier one: a long request might never join.",
        ),
        (
            sum(need <= free for need in needs[:places]),
            "Each fits by itself; those that joined before it have taken blocks.",
        ),
        (
            _prefix(first, free),
            "`sizes` are tokens, and `free` are blocks of 16 tokens.",
        ),
        (
            min(len(sizes), places),
            "The cache is full before that: count the blocks.",
        ),
    ]


def _prefix(needs: Sequence[float], free: int) -> int:
    """How many of these, in order, fit."""
    total = 0.0
    for n, need in enumerate(needs):
        total += need
        if total > free:
            return n
    return len(needs)


def slots(answer: object) -> str:
    """The lives of three sequences that share twelve blocks: they grow by one token or
    by many, shrink, end and begin again.
    """
    fn = function(answer)
    draw = random.Random(1961)
    for first in (40, 17, 16, 15, 1):
        free = [7, 2, 9, 4]
        _judged_slots(fn, [], free, first, f"a new sequence of {first} tokens")
    free = [*range(12)]
    draw.shuffle(free)
    tables: list[list[int]] = [[], [], []]
    for _ in range(120):
        table = draw.choice(tables)
        most = BLOCK * (len(table) + len(free))
        now = BLOCK * len(table)
        n_tokens = draw.choice((0, 1, now, now + 1, now - 3, now + 20, most))
        n_tokens = max(0, min(n_tokens, most))
        words = f"a sequence with the blocks {table} that now has {n_tokens} tokens"
        _judged_slots(fn, table, free, n_tokens, words)
    return "Right: no block is lost, taken twice or given back twice."


def _judged_slots(
    fn: Callable[..., object],
    table: list[int],
    free: list[int],
    n_tokens: int,
    given: str,
) -> None:
    """Call an answer, which changes table and free; NotYet unless both are right."""
    before = list(table)
    pool = [*table, *free]
    raised: NotYet | None = None
    got: object = None
    try:
        got = call(fn, table, free, n_tokens)
    except NotYet as error:
        raised = error  # what is wrong with the blocks says more
    for name, blocks in (("table", table), ("free", free)):
        if not all(map(is_whole, blocks)):
            raise NotYet(
                f"For {given}: expected numbers of blocks in `{name}`, found"
                f" {brief_repr(blocks)}."
            )
    _judge_pool(pool, table, free, given)
    _judge_table(before, table, n_tokens, given)
    if raised is not None:
        raise raised
    listed = whole_numbers(got, f"a list of {n_tokens} slots", given)
    right = [BLOCK * table[i // BLOCK] + i % BLOCK for i in range(n_tokens)]
    if listed == right:
        return
    if len(listed) != n_tokens:
        what = "only the new ones?" if len(listed) < n_tokens else "whole blocks?"
        raise NotYet(
            f"For {given}: {len(listed)} slots, and {n_tokens} tokens need as many:"
            f" {what}"
        )
    i = next(i for i in range(n_tokens) if listed[i] != right[i])
    words = f"Token {i} has place {i % BLOCK} of block {table[i // BLOCK]}."
    if listed == [*range(n_tokens)]:
        words = f"That leaves the table out. {words}"
    elif listed[i] == right[i] + 1:
        words = f"Off by one: places of a block count from 0. {words}"
    raise NotYet(f"For {given}: slot {listed[i]} for token {i}. {words}")


def _judge_pool(pool: list[int], table: list[int], free: list[int], given: str) -> None:
    """NotYet unless each block is in one place."""
    now = Counter([*table, *free])
    for block in sorted(pool):
        if now[block] == 1:
            continue
        if block in table and block in free:
            words = "in the table and free at once: another sequence will write to it"
        elif now[block] > 1:
            words = "there twice: it was given back twice, or taken twice"
        else:
            words = "lost: it is neither in the table nor free"
        raise NotYet(f"For {given}: afterwards block {block} is {words}.")


def _judge_table(
    before: list[int], table: list[int], n_tokens: int, given: str
) -> None:
    """NotYet unless the table has as many blocks as its tokens need, the old ones
    first.
    """
    needed = _blocks(n_tokens)
    if len(table) != needed:
        if len(table) == n_tokens // BLOCK:
            words = "The last block need not be full: round up."
        elif len(table) > needed and len(before) > needed:
            words = "Blocks that no token is in any more go back to `free`."
        elif len(table) > needed:
            words = "As long as the last block has room, no new one is taken."
        else:
            words = "Take blocks until all tokens have room."
        raise NotYet(
            f"For {given}: the table has {len(table)} of the {needed} blocks that"
            f" {n_tokens} tokens need. {words}"
        )
    kept = min(len(before), needed)
    if table[:kept] != before[:kept]:
        raise NotYet(
            f"For {given}: the table's first blocks were {before[:kept]} and are now"
            f" {table[:kept]}. Earlier tokens are in them: add and remove at the end."
        )


# 19.6b


def accept(answer: object) -> str:
    """Drafts that are right to the end, from the start wrong, and right again after a
    wrong one.
    """
    draw = random.Random(1962)
    cases: dict[str, tuple[list[int], list[int]]] = {
        "no draft": ([], [5]),
        "a draft that is right": ([3, 1, 4], [3, 1, 4, 9]),
        "a wrong first token": ([2, 7, 2], [6, 7, 2, 8]),
        "a wrong token between right ones": ([5, 8, 1, 2], [5, 9, 1, 2, 6]),
        "a wrong last token": ([7, 3], [7, 4, 0]),
        "the same token again and again": ([1, 1, 1], [1, 1, 2, 1]),
    }
    for i in range(24):
        target = [draw.randrange(4) for _ in range(draw.randrange(2, 9))]
        draft = [t if draw.random() < 0.7 else draw.randrange(4) for t in target[:-1]]
        cases[f"draw {i}"] = (draft, target)
    over_cases(answer, cases, _accept, _judge_accept)
    return "Right: what the model writes alone, and no wrong guess stays in the cache."


def _accept(draft: list[int], target: list[int]) -> tuple[list[int], int]:
    pairs = zip([*draft, None], target, strict=True)
    n_right = next(i for i, (guess, token) in enumerate(pairs) if guess != token)
    return target[: n_right + 1], n_right


def _judge_accept(
    got: object,
    right: tuple[list[int], int],
    given: str,
    draft: list[int],
    target: list[int],
) -> None:
    case = f"{given}, draft = {draft}, target = {target}"
    expected = "(tokens that are kept, how many drafted ones were right)"
    kept, n_right = parts(as_list(got) or got, 2, expected, case)
    tokens = whole_numbers(kept, "a list of tokens", case)
    if tokens != right[0]:
        words = _kept_mistake(tokens, right, draft, target)
        raise NotYet(
            f"For {case}: {tokens} are kept, and {right[0]} should be. {words}"
        )
    count = as_number(n_right, "(how many were right)", case)
    if count == right[1]:
        return
    words = "Count the drafted tokens before the first wrong one."
    if count == len(draft):
        words = (
            "Wrong guesses would stay in the cache: it has to be rolled back to the"
            " right ones."
        )
    elif count == right[1] + 1:
        words = (
            "The model's own token isn't among them: it wasn't read yet, so its key and"
            " value aren't in the cache."
        )
    raise NotYet(f"For {case}: {count:g} drafted tokens stay, not {right[1]}. {words}")


def _kept_mistake(
    tokens: list[int], right: tuple[list[int], int], draft: list[int], target: list[int]
) -> str:
    """What is wrong with the tokens that are kept."""
    n = right[1]
    agreeing = [
        token for guess, token in zip(draft, target[:-1], strict=True) if guess == token
    ]
    if tokens in (draft[:n], []):
        return "The call has computed the model's own token after them, too: keep it."
    if tokens in (draft, target, [*draft, target[-1]]):
        return "Nothing after the first wrong token is what the model would write."
    if tokens in (agreeing, [*agreeing, target[-1]]):
        return "A token after a wrong one was guessed for another text: stop there."
    if tokens == draft[: n + 1]:
        return "In place of the wrong token stands the model's own."
    if tokens == [*draft[:n], target[-1]]:
        return "The model's own token is the one at the first wrong place."
    return "target[i] is what the model writes after draft[:i]."
