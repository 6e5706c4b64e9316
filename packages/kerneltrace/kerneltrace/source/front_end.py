"""Let numba.cuda type a function: the first half of its compiler, which needs no GPU,
no driver and no NVVM.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import traceback
import types
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from kerneltrace.source.numba_versions import check_numba

DEFAULT_CAPABILITY = (8, 0)  # every CUDA 12 and 13 compiles for it


def is_simulator() -> bool:
    """Whether numba.cuda is its simulator in this process, which has no compiler.

    Its setting may say otherwise: `simulate` leaves it set for tests that look at it.
    RuntimeError where numba-cuda is too old for numba.
    """
    check_numba()
    importlib.import_module("numba.cuda")
    return "numba.cuda.simulator_init" in sys.modules


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def pretended_device(
    compute_capability: tuple[int, int],
) -> AbstractContextManager[None]:
    """Answer numba's query for the current GPU: it asks for each device function, even
    with a target given.
    """
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    device = SimpleNamespace(compute_capability=compute_capability)
    return _replaced(dispatcher, "get_current_device", lambda: device)


def _known_layout() -> AbstractContextManager[None]:
    """Answer numba's query for NVVM's data layout where NVVM is missing."""
    nvvm: Any = importlib.import_module("numba.cuda.cudadrv.nvvm")
    try:
        nvvm.NVVM()
    except Exception:
        # which one it raises for a library that does not load depends on its version
        layout = getattr(nvvm, "_datalayout", "") or nvvm._datalayout_i128
        own = SimpleNamespace(data_layout=layout, get_ir_version=lambda: (2, 0, 3, 1))
        return _replaced(nvvm, "NVVM", lambda: own)
    return nullcontext()


@contextmanager
def set_for_device() -> Iterator[None]:
    """Let numba compile its own overloads for a device while its setting says that it
    is its simulator, as it may for tests that look at it.
    """
    with ExitStack() as stack:
        for home in ("numba.core.config", "numba.cuda.core.config"):
            if home in sys.modules:
                config = sys.modules[home]
                stack.enter_context(_replaced(config, "ENABLE_CUDASIM", 0))
        yield


def _calls_kept() -> AbstractContextManager[None]:
    """Keep calls of device functions with inline="always": inlined, their operations
    would have the lines of another function.
    """
    # numba-cuda has its own copy of numba's passes
    home = "numba.cuda.core" if find_spec("numba.cuda.core") else "numba.core"
    passes: Any = importlib.import_module(f"{home}.untyped_passes")
    return _replaced(passes.InlineInlinables, "run_pass", lambda self, state: True)


def _max_and_min_of_two() -> AbstractContextManager[None]:
    """Let numba's own CUDA target compile `max(a, b)` and `min(a, b)`.

    Since numba 0.66 they are functions of `*args`, which it calls with too many
    arguments (github.com/numba/numba/issues/10753). numba-cuda has its own two.
    """
    if find_spec("numba.cuda.core"):
        return nullcontext()
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher").CUDADispatcher
    call_template = dispatcher.get_call_template

    def with_tuple(self: Any, args: Any, kws: Any) -> Any:
        parameters = inspect.signature(self.py_func).parameters.values()
        if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
            _, args = self._compiler.fold_argument_types(args, kws)
            kws = {}
        return call_template(self, args, kws)

    return _replaced(dispatcher, "get_call_template", with_tuple)


def annotation(function: Any, types: tuple[Any, ...], *, kernel: bool) -> Any:
    """Numba's annotation of a function, whose `blocks`, `typemap` and `calltypes` type
    each of its operations.

    `types` are numba's, one for each parameter; a kernel returns nothing. Raises
    numba's own error for what it rejects.
    """
    compiler: Any = importlib.import_module("numba.cuda.compiler")
    returned = importlib.import_module("numba").types.void if kernel else None
    # An inlined function may return an array, which its caller's types have judged;
    # older numba-cuda, as on Colab, refuses it and has no such parameter.
    options = {"inline": "never" if kernel else "always"}
    if "inline" not in inspect.signature(compiler.compile_cuda).parameters:
        options = {}
    with (
        pretended_device(DEFAULT_CAPABILITY),
        _known_layout(),
        _calls_kept(),
        _max_and_min_of_two(),
        set_for_device(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        return compiler.compile_cuda(
            function, returned, types, cc=DEFAULT_CAPABILITY, **options
        ).type_annotation


@functools.cache  # one function for the same types, which the trace keeps by identity
def implementation(
    function: types.FunctionType, kinds: tuple[Any, ...]
) -> types.FunctionType:
    """What numba compiles for a function without a decorator, called with arguments of
    the types `kinds`: what its @overload gives, or itself.
    """
    target: Any = importlib.import_module("numba.cuda.descriptor").cuda_target
    try:
        templates = target.typing_context.resolve_value_type(function).templates
    except ValueError:  # it is not overloaded
        return function
    for template in templates:
        overload = getattr(template, "_overload_func", None)
        chosen = overload and overload(*kinds)
        if isinstance(chosen, types.FunctionType):
            return chosen
    return function


MAKES_ARRAY = "That makes a new array"
_TWO_TYPES = re.compile(r"Cannot unify (.*) and (.*) for '(?P<name>[^'.]+).*")
_MEANT = {
    r"NRT required|_ol_array_allocate": MAKES_ARRAY,
    r"No conversion from .* to none for": "It returns a value",
    r"^<ufunc '(\w+)'>$": r"NumPy's \1 works on whole arrays",
    r"No implementation of function getitem: getitem\((?:u?int|float|bool)\d*, .*": (
        "What is indexed there is one number, not an array"
    ),
    r"Invalid use of ((?:u?int|float|bool)\d*) with parameters .*": (
        r"A number, \1, is called there like a function"
    ),
    _TWO_TYPES.pattern: r"\g<name> would be \1 in one place and \2 in another",
    r"(Cannot cast .*): %.*": r"\1",
}
"""What numba means, by a pattern of its own words."""

_ADVICE = {
    r"<class 'function'>": (
        "A function that a kernel calls needs @cuda.jit(device=True) above it."
    ),
    (
        r"name '(threadIdx|block|gridDim|shared|local|const|atomic|sync|shfl|vote"
        r"|thread)"
    ): "Write it as a member of cuda.",
    r"name '.*' is not defined": "Import or define it before the kernel.",
    r"Dim3": "threadIdx, blockIdx and the like have three parts: take .x of it.",
    r"getitem\((u?int|float|bool)\d*,": "Leave out the index.",
    r"Invalid use of (u?int|float|bool)\d* with": "Leave out the brackets behind it.",
    r"<ufunc": (
        "A kernel works on single elements: index each array, and take functions of"
        " math, such as math.sqrt."
    ),
    r"of (type )?[Mm]odule": (
        "Of functions a kernel has those of math that CUDA has, such as math.sqrt."
    ),
    r"'append' of type array": (
        "An array keeps its size: give the place that is written, as in out[i] = x[i]."
    ),
    r"argument: 'ndim'": "It takes 1, 2 or 3: cuda.grid(1) counts in one dimension.",
    r"Untyped global": (
        "From outside a kernel takes numbers, tuples, arrays and functions with"
        " @cuda.jit(device=True)."
    ),
    r"(shared|local)\.array": (
        "It takes a shape, which is a number in the source or a global one (0 for"
        " dynamic shared memory), and a type such as float32. Compute a sum or a"
        " product outside of the kernel, and give it a name."
    ),
    r"syncthreads_\w+\(": "It takes an integer: int32(x > 0).",
    r"index type float": (
        "An index has to be a whole number: / gives a fraction, // does not."
    ),
    r"has no attribute 'dtype'|enough values to unpack": (
        "Atomics take the array, the index, and the value: cuda.atomic.add(array, i,"
        " value)."
    ),
    r"to none for": "A kernel returns nothing: write its results into an array.",
    r"NRT|allocate|zeros|empty": (
        "A kernel can't make arrays: write single elements, as in out[i] = 2 * x[i], or"
        " use cuda.local.array."
    ),
    r">>>.*[( ]array\(.*[( ]array\(|>>> \w+\(array\([^)]*\)\)": (
        "A kernel works on single elements: index the array."
    ),
    r"Cannot unify .*array\(|>>> (i?(add|sub|mul|truediv)|min|max)\(.*array\(": (
        "A kernel works on single elements: give an index for each dimension of the"
        " array."
    ),
    r"insert_unresolved_ref": (
        "The kernel calls a function that calls itself: write that as a loop."
    ),
}
"""What to do about an error of numba, by a pattern in its message."""


_PASSES = re.compile(r"\x1b\[[\d;]*m|Failed in .* mode .*\n|- Resolution failure .*\n")
# numba-cuda 0.30.4 knows no assert on Python 3.14 (op_LOAD_COMMON_CONSTANT)
_UNREAD = (
    "numba-cuda can't read the bytecode that this Python makes of it; on Python 3.14"
    " that is so for `assert`: write `if not ...: raise AssertionError`."
)
_DESCRIBED = re.compile(
    r"(?:Function|Module)\(<(?:built-in function|function|intrinsic|class|module)"
    r" '?([\w.]+).*?>\)"
)
_CAUSE = re.compile(r"^ *\w*Error: +((?! *No implementation).*)", re.MULTILINE)


def _becomes_array(variables: Any, message: str) -> Any:
    """Where a name, which the message says can't have two types, becomes an array;
    None where it doesn't.
    """
    match = _TWO_TYPES.search(message)
    places = {
        name: variable.define_loc
        for name, variable in variables.items()
        if match and variable.defined and name.split(".")[0] == match["name"]
        if str(variable.type).startswith("array(")
    }
    # x, x.1, ... are the assignments, the last ones where branches meet
    return places[min(places)] if places else None


def reason(error: Exception, file: str) -> tuple[int, str]:
    """The line of a file that numba rejects, 0 if it is unknown, and why.

    That is numba's own words, without its passes and candidates, and what to do.
    """
    places = [getattr(error, "loc", None)]
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for name in ("constraint", "inst"):
            places.append(getattr(frame.f_locals.get(name), "loc", None))
        variables = getattr(frame.f_locals.get("self"), "typevars", {})
        places.append(_becomes_array(variables, str(error)))
    lines = [place.line for place in places if place and place.filename == file]
    if not lines:
        of_file = re.findall(rf'File "{re.escape(file)}", line (\d+)', str(error))
        lines = list(map(int, of_file))
    if isinstance(error, NotImplementedError) and not str(error):
        return max(lines, default=0), _UNREAD
    message = _PASSES.sub("", str(error)).strip()
    words = _DESCRIBED.sub(r"\1", message.split("\n")[0])
    call = re.search(r">>> (.*)", message)
    if call:
        words = f"{words.removesuffix(' found for signature:')}: {call[1]}"
    for pattern, meant in _MEANT.items():
        if match := re.search(pattern, message if meant == MAKES_ARRAY else words):
            words = match.expand(meant)
            break
    sentences = [words.rstrip(".")]
    causes = (cause.strip() for cause in _CAUSE.findall(message))
    cause = next((cause for cause in causes if cause not in words), "")
    if cause and words != MAKES_ARRAY:
        sentences.append(cause.rstrip("."))
    fitting = (each for pattern, each in _ADVICE.items() if re.search(pattern, message))
    advice = next(fitting, "")
    return max(lines, default=0), f"{'. '.join(sentences)}. {advice}".rstrip()
