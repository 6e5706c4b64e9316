"""What a reader's own code raised, in words: the error, the line, and what to do."""

from __future__ import annotations

import difflib
import linecache
import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from labkit.core.arguments import brief_repr
from labkit.core.display import cut

_LONGEST = 300
_LONGEST_LINE = 80
# what to do about an error of Python's or torch's, by a pattern in its words
_ADVICE = {
    r"for \^": "A power is written **, not ^.",
    r"for .*'(builtin_function_or_method|function|method)'": (
        "A function has to be called, with brackets, to give its value."
    ),
    r"for .*'NoneType'": "None is what a function without return gives.",
    r"'NoneType' object": "None is what a function without return gives.",
    r"takes .* positional arguments? but": (
        "It is called with as many values as the exercise names."
    ),
    r"missing .* required positional": "Give it all that it takes, in its order.",
    r"index out of range|is out of bounds": (
        "Places are counted from 0: the last one is the length less 1."
    ),
    r"'int' object is not iterable": "range(n) counts from 0 to n - 1.",
    r"shape of the mask": (
        "Does the function use a name from outside in place of what it is given?"
    ),
    r"object is not callable": "Leave out the brackets behind what is no function.",
    r"'bool' object is not subscriptable": (
        "One True or False stands for all. Were a tuple and a tensor compared?"
        " tensor.max(dim) gives values and places, tensor.argmax(dim) the places."
    ),
    r"is not subscriptable": "It has no parts: leave out the index.",
    r"can only concatenate str|must be str, not|unsupported .*'str'": (
        "Text and numbers don't add up: leave out the quotation marks."
    ),
    r"could not infer output dtype.*Bool": (
        "True and False have no mean: make them numbers, with .float()."
    ),
    r"Torch not compiled with CUDA|No CUDA GPUs|no NVIDIA driver": (
        "There is no GPU here: use what the function is given."
    ),
    r"truth value of an? .*(array|[Tt]ensor)": (
        "An array has many truth values: compare single elements, or take .all()."
    ),
    r"division by zero": "Which of the inputs can be 0?",
    r"maximum recursion depth": "The function calls itself without an end.",
}


def in_words(error: BaseException, fn: object = None) -> str:
    """An error's type and words, the line of `fn` that raised it, and what to do."""
    text = cut(str(error), _LONGEST)
    name = type(error).__name__
    if not text:
        return name
    words = f"{name}: {text}"
    line = _line(error, fn)
    if line:
        words = f"{words.rstrip('.')}, in `{line}`."
    advice = _advice(error)
    if advice:
        words = f"{words.rstrip('.')}. {advice}"
    return words


def called(fn: Callable[..., Any], args: Sequence[Any]) -> str:
    """A call as a message quotes it, with the function's own name."""
    name = getattr(fn, "__name__", "Your function")
    return f"{name}({', '.join(map(_argument, args))})"


def _argument(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return brief_repr(value)


def _line(error: BaseException, fn: object) -> str:
    """The last line of the file of `fn` that an error passed; empty without one."""
    code = getattr(getattr(fn, "py_func", fn), "__code__", None)
    if code is None:
        return ""
    file = code.co_filename
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file and frame.lineno
    ]
    if not lines:
        return ""
    return cut(linecache.getline(file, lines[-1]).strip(), _LONGEST_LINE)


def _advice(error: BaseException) -> str:
    if isinstance(error, NameError) and error.name:
        return _nearest_name(error)
    for pattern, words in _ADVICE.items():
        if re.search(pattern, str(error)):
            return words
    return ""


def _nearest_name(error: NameError) -> str:
    """The name that may be meant, of those that the failing line knows."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return ""
    frame = frames[-1][0]
    names = [*frame.f_locals, *frame.f_globals, *frame.f_builtins]
    near = difflib.get_close_matches(str(error.name), names, n=1, cutoff=0.7)
    return f"Did you mean {near[0]}?" if near else ""
