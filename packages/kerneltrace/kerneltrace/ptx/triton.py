"""Compile a Triton kernel to PTX, which needs no GPU."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerneltrace._text import brief_repr
from kerneltrace.errors import KernelError
from kerneltrace.machine.grid import WARP
from kerneltrace.ptx.launch import Kernel

_CAPABILITY = 80
"""8.0: later tensor cores have instructions that are not run here."""
_HIDDEN = 2
"""Pointers that Triton adds to a kernel's parameters, to memory that these kernels
don't use.
"""
_TYPES = {"f2": "fp16", "f4": "fp32", "f8": "fp64", "b1": "i1"} | {
    f"{kind}{n}": f"{kind}{8 * n}" for kind in "iu" for n in (1, 2, 4, 8)
}


def has_triton() -> bool:
    """Whether Triton itself is installed, and not what stands in for it."""
    if "triton" in sys.modules:
        return getattr(sys.modules["triton"], "__spec__", None) is not None
    return importlib.util.find_spec("triton") is not None


def is_triton(kernel: Any) -> bool:
    """Whether a kernel is a function under @triton.jit."""
    return type(kernel).__module__.startswith("triton.")


def python_of(kernel: Any) -> Any:
    """The Python function under @triton.jit and what else decorates a kernel."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def configured(
    kernel: Any, args: tuple[Any, ...], named: Mapping[str, Any], warps: int = 0
) -> tuple[dict[str, Any], Any]:
    """Arguments by name with the constants of @triton.autotune's configuration and of
    @triton.heuristics, where the caller passes none, and that configuration.

    It is the first one that agrees with what is `named`, of so many `warps` if there
    is one. KernelError for a heuristic that lacks an argument.
    """
    parameters = inspect.signature(python_of(kernel)).parameters
    constants = dict(named)
    configuration = None
    while hasattr(kernel, "fn"):
        configurations = list(getattr(kernel, "configs", None) or ())
        agreeing = [
            each
            for each in configurations
            if all(constants.get(name, own) == own for name, own in each.kwargs.items())
        ]
        suitable = [each for each in agreeing if each.num_warps == warps] or agreeing
        for first in (suitable or configurations)[:1]:
            configuration = first
            constants = {**first.kwargs, **constants}
        for name, heuristic in dict(getattr(kernel, "values", None) or {}).items():
            if name in constants:
                continue
            by_name = dict(zip(parameters, args, strict=False))
            try:
                constants[name] = heuristic({**by_name, **constants})
            except KeyError as missing:
                raise KernelError(
                    f"@triton.heuristics works out {name} from {missing}, which is not"
                    " passed. Pass it by its name, as a constant."
                ) from None
        kernel = kernel.fn
    return constants, configuration


def jit_function(kernel: Any) -> Any:
    """What @triton.jit made, under whatever else decorates it."""
    while hasattr(getattr(kernel, "fn", None), "fn"):
        kernel = kernel.fn
    return kernel


def compile_triton(
    kernel: Any, args: tuple[Any, ...], constants: Mapping[str, Any], threads: int
) -> Kernel:
    """A Triton kernel as PTX of compute capability 8.0, for these arguments and
    `threads` in a block.

    `constants` are its parameters of the type tl.constexpr, but for those with
    defaults, or that @triton.autotune and @triton.heuristics set. KernelError for a
    wrong number of arguments, for threads that are no power of two of warps, and in
    Triton's words for what it can't compile.
    """
    constants, configuration = configured(kernel, args, constants, threads // WARP)
    kernel = jit_function(kernel)
    for parameter in kernel.params[len(args) :]:
        if parameter.has_default:
            constants.setdefault(parameter.name, parameter.default)
    left = [each for each in kernel.params if each.name not in constants]
    names = [each.name for each in left if not each.is_constexpr]
    missing = [each.name for each in left if each.is_constexpr]
    is_power = threads % WARP == 0 and (threads // WARP).bit_count() == 1
    if missing or len(names) != len(args) or not is_power:
        needed = ", ".join(f"{name!r}: ..." for name in missing) or "..."
        raise KernelError(
            f"{kernel.__name__} takes {', '.join(names)} and 32, 64, 128, ... threads a"
            f" block; got {len(args)} arguments and {threads} threads. Pass what is"
            f" tl.constexpr in constants={{{needed}}}."
        )
    stages = getattr(configuration, "num_stages", None) or 0
    compiled = triton_code(
        kernel, args, constants, _CAPABILITY, threads // WARP, stages
    )
    lines, first = inspect.getsourcelines(kernel.fn)
    source = dict(enumerate(map(str.rstrip, lines), first))
    ones = _ones(kernel, names, args)
    entry = compiled.metadata.name
    shared_bytes = compiled.metadata.shared
    return Kernel(
        compiled.asm["ptx"],
        entry,
        source,
        names,
        shared_bytes,
        hidden=_HIDDEN,
        constants=ones,
    )


def _ones(kernel: Any, names: Sequence[str], args: Sequence[Any]) -> set[str]:
    """The parameters that a launch makes constants: numbers that are 1, such as the
    stride of a matrix's columns.
    """
    varying = {
        parameter.name for parameter in kernel.params if parameter.do_not_specialize
    }
    return {
        name
        for name, value in zip(names, args, strict=True)
        if type(value) is int and value == 1 and name not in varying
    }


def triton_code(
    kernel: Any,
    args: tuple[Any, ...],
    constants: Mapping[str, Any],
    capability: int,
    warps: int,
    stages: int = 0,
    ctas: int = 1,
) -> Any:
    """What Triton makes of a kernel for a compute capability (80 is 8.0), for clusters
    of `ctas` blocks.

    As at a launch, numbers that are 1 become constants. `stages` are those of loads in
    loops, 0 for Triton's own.
    """
    triton: Any = importlib.import_module("triton")
    backend: Any = importlib.import_module("triton.backends.compiler")
    names = [name for name in kernel.arg_names if name not in constants]
    if len(names) != len(args):
        raise KernelError(
            f"{kernel.__name__} takes {', '.join(names)}; got {len(args)} arguments"
            " besides constants."
        )
    ones = _ones(kernel, names, args)
    types = {
        name: _type(name, value)
        for name, value in zip(names, args, strict=True)
        if name not in ones
    }
    # A pointer or number that 16 divides lets Triton load vectors, as at a launch.
    aligned = {
        (kernel.arg_names.index(name),): [["tt.divisibility", 16]]
        for name, value in zip(names, args, strict=True)
        if hasattr(value, "shape") or (isinstance(value, int) and value % 16 == 0)
    }
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(
        kernel, signature, {**constants, **dict.fromkeys(ones, 1)}, aligned
    )
    options = {"num_warps": warps, "num_ctas": ctas, "enable_fp_fusion": True}
    if stages:
        options["num_stages"] = stages
    try:
        return triton.compile(
            source, target=backend.GPUTarget("cuda", capability, WARP), options=options
        )
    except Exception as error:
        raise KernelError(
            f"Triton can't compile {kernel.__name__}: {error}\nkerneltrace.tiles.trace"
            " says where a kernel breaks Triton's rules."
        ) from error


def _type(name: str, value: Any) -> str:
    if getattr(value, "shape", ()) or hasattr(value, "data_ptr"):
        kind = str(value.dtype)
        if "bfloat16" in kind:
            return "*bf16"
        code = np.dtype(kind.removeprefix("torch.")).str[1:]
        return f"*{_TYPES[code]}"
    if isinstance(value, bool | int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    if isinstance(value, float):
        return "fp32"
    raise KernelError(
        f"A Triton kernel takes arrays and numbers; {name!r} is {brief_repr(value)}."
    )
