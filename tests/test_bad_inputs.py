"""Public functions refuse what can't be right, in words that name the parameter."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import re
import types
import typing

import numpy as np
import pytest
import torch
from numba import cuda

import kerneltrace
import labkit as lab
import ranks
import steptime
import trainplan
from exercises.nb11.several_seeds import Runs
from exercises.nb14.pipelines import idle_share
from labkit.core.errors import LabError
from labkit.core.paths import PACKAGES
from labkit.plot.core import Drawing
from labkit.train.training import Run
from tests import notebook_modules

pytestmark = pytest.mark.slow  # imports everything, and calls each function

REFUSALS = (LabError, TypeError, ValueError)
OWN = ("exercises.", *(f"{name}." for name in PACKAGES))


# -- what is public


def modules():
    """The packages, their public parts, and what stands beside the exercises."""
    packages = [lab, kerneltrace, ranks, steptime, trainplan]
    names = [(package, name) for package in packages for name in package.__all__]
    values = [getattr(package, name) for package, name in names]
    parts = [value for value in values if inspect.ismodule(value)]
    return [*packages, *parts, *notebook_modules.instruments().values()]


def public_functions():
    """Name -> function, class or figure; what several modules offer comes once."""
    named = {}
    for module in modules():
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            of_this_project = str(getattr(value, "__module__", "")).startswith(OWN)
            if callable(value) and of_this_project and not name.startswith("_"):
                named.setdefault(id(value), (f"{module.__name__}.{name}", value))
    drawings = notebook_modules.drawings().items()
    return dict(named.values()) | {
        f"figures.{name}": figure for name, figure in drawings
    }


def is_checked(function):
    """Whether a function's arguments are judged by its annotations before it runs."""
    return getattr(getattr(function, "__code__", None), "co_name", "") == "door"


def without_instance(method):
    return lambda **arguments: method(None, **arguments)


def checked_functions():
    """(name, function with annotations, what to call) of each checked function."""
    for name, value in public_functions().items():
        if isinstance(value, Drawing):
            yield name, value.draw, value
        elif is_checked(value):
            yield name, value, value
        elif inspect.isclass(value):
            if is_checked(value.__init__):
                yield name, value.__init__, value
            for method_name, method in vars(value).items():
                if is_checked(method) and not method_name.startswith("_"):
                    yield f"{name}.{method_name}", method, without_instance(method)


# -- what a parameter can't take


def hints_of(function):
    """Parameter -> annotation, of those that can be resolved at run time."""
    hints = {}
    for name, hint in function.__annotations__.items():
        with contextlib.suppress(NameError):
            is_text = isinstance(hint, str)
            hints[name] = eval(hint, function.__globals__) if is_text else hint
    return hints


def choices(hint):
    """The types that an annotation takes, each with its bounds or None."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        inner, bounds, *_ = typing.get_args(hint)
        is_union = typing.get_origin(inner) in (typing.Union, types.UnionType)
        return choices(inner) if is_union else [(inner, bounds)]
    if origin in (typing.Union, types.UnionType):
        return [choice for part in typing.get_args(hint) for choice in choices(part)]
    return [(hint, None)]


def is_type_variable(kind):
    return isinstance(kind, typing.TypeVar)


def mistakes(hint):
    """Values that can't be: an object, NaN, and a number below the bounds."""
    found = choices(hint)
    kinds = [kind for kind, _ in found]
    if typing.Any in kinds or object in kinds or any(map(is_type_variable, kinds)):
        return []
    values = [object()]
    for kind, bounds in found:
        if kind not in (int, float):
            continue
        if getattr(bounds, "finite", True):
            values.append(math.nan)
        if getattr(bounds, "above", None) == 0:
            values.append(0)
        elif getattr(bounds, "least", -math.inf) > -1e30:
            values.append(bounds.least - 1)
    return values


# These parameters are judged by the function itself, once all that it needs is there.
JUDGED_LATER = {
    ("SpeedBoard.time", "fn"), ("record", "value"), ("verdict", "because"),
    ("Cluster", "device"), ("schedule.simulate", "schedule"), ("Hosts.launch", "fn"),
    ("which_gpus", "gpus"),
}  # fmt: skip


def cases():
    for name, function, call in checked_functions():
        annotated = inspect.unwrap(function)
        hints = hints_of(annotated)
        for parameter in inspect.signature(annotated).parameters.values():
            by_name = parameter.kind in (
                parameter.POSITIONAL_OR_KEYWORD,
                parameter.KEYWORD_ONLY,
            )
            later = {end for end, last in JUDGED_LATER if last == parameter.name}
            if by_name and not name.endswith(tuple(later)):
                for value in mistakes(hints.get(parameter.name, typing.Any)):
                    yield name, call, parameter.name, value


def test_every_checked_function_refuses_what_its_annotations_exclude():
    tried = 0
    complaints = []
    for name, call, parameter, value in cases():
        tried += 1
        try:
            call(**{parameter: value})
            complaints.append(f"{name}({parameter}={value!r}) is taken")
        except REFUSALS as error:
            if not str(error).startswith(f"Expected {parameter}"):
                complaints.append(f"{name}({parameter}={value!r}): {error}")
        except Exception as error:
            complaints.append(f"{name}({parameter}={value!r}): {error!r}")
    assert complaints == []
    assert tried > 1_000


# -- functions that judge for themselves, each with its most likely mistake


@cuda.jit
def add_one(x):
    x[cuda.grid(1)] += 1


@pytest.fixture(scope="module")
def trace():
    return lab.trace(add_one, 1, 32, np.ones(32))


CEILINGS = steptime.Ceilings("cpu", {"float32": 1e11}, 1e11, 1)
LIMIT = steptime.Limit({"input": 0.5, "arithmetic": 0.5}, (), 1.0)
RUN = Run(0, 1, (1.0,), (0.5,), (1.0,), (1,), torch.nn.Identity())
TIMING = lab.Timing("a", 1.0, (1.0,) * 5)
NO_BRACKETS = "Pass its name without brackets."
NEAREST_BFLOAT16 = "The nearest is 'bfloat16'."
PER_CENT = "got 97. It is a share: write 0.97 for 97 %."
H100 = "Nearest names: H100 NVL, H100 PCIe 80GB, H100 SXM5 80GB"

ROWS = {
    "check": (lambda: lab.check("00.11", 1), "There is no exercise '00.11'"),
    "cards": (lambda: lab.cards("99"), "There is no notebook '99'; did you mean"),
    "predict": (lambda: lab.predict("one thread", 5, "s"), "Expected a key like"),
    "record": (lambda: lab.record("00.1 x", "fast", "s"), "a finite number in s"),
    "speedup": (lambda: lab.speedup(2.0, TIMING), "baseline to be a Timing, got 2.0."),
    "catalog.find": (lambda: lab.catalog.find("H1000"), H100),
    "catalog.peak": (lambda: lab.catalog.peak("T4", "bfloat"), NEAREST_BFLOAT16),
    "published.table": (lambda: lab.published.table("memcpy"), "memcpy_bandwidth"),
    "Run.time_to": (lambda: RUN.time_to(97), PER_CENT),
    "Runs.time_to": (lambda: Runs((RUN,), "a").time_to(97), PER_CENT),
    "idle_share": (lambda: idle_share([]), "Expected spans of watched stages"),
    "trainplan.model": (lambda: trainplan.model("GPT-5"), "The nearest are GPT"),
    "trainplan.Cluster": (lambda: trainplan.Cluster("A100 90GB", 8), "Nearest names: A100"),
    "trainplan.step": (
        lambda: trainplan.step("GPT 1.7B", None, None, 8),
        "Expected model to be a Transformer, got 'GPT 1.7B'.",
    ),
    "schedule.simulate": (lambda: lab.schedule.simulate("F0"), "a list for each rank"),
    "lab.trace": (lambda: lab.trace(add_one, 1, 2048, np.ones(9)), "1 to 1,024"),
    "lab.Stepper": (lambda: lab.Stepper(add_one, 9, np.ones(9)), "from 1 to 8, got 9"),
    "python_function": (lambda: kerneltrace.python_function(5), "Expected a kernel"),
    "compile_cuda": (lambda: lab.compile_cuda(add_one), "source to be text"),
    "occupancy": (
        lambda: lab.occupancy(256, registers=24, compute_capability=8.0),
        "Expected compute_capability to be a pair of whole numbers",
    ),
    "ranks.launch, a result": (lambda: ranks.launch(os.getpid(), 2), NO_BRACKETS),
    "ranks.launch, no ranks": (lambda: ranks.launch(os.getpid, 0), "from 1 to"),
    "ranks.report": (lambda: ranks.report(loss="low"), "loss to be a number"),
    "ranks.span": (lambda: ranks.span("forward"), "Expected kind to be one of"),
    "steptime.counted_flop": (lambda: steptime.counted_flop(5), NO_BRACKETS),
    "steptime.wait_lines": (lambda: steptime.wait_lines(5), NO_BRACKETS),
    "steptime.profile_step": (lambda: steptime.profile_step(5), NO_BRACKETS),
    "steptime.diagnose": (lambda: steptime.diagnose(5), NO_BRACKETS),
    "find_bottleneck": (lambda: steptime.find_bottleneck(5, None), "of 1 argument"),
    "steptime.saved_activation_bytes": (
        lambda: steptime.saved_activation_bytes(5, torch.ones(2)),
        "Expected layer to be a function of 1 argument, got 5.",
    ),
    "steptime.utilization": (
        lambda: steptime.utilization(1e12, -1.0, ceilings=CEILINGS),
        "Expected seconds to be a finite number above 0, got -1.0. It is in seconds.",
    ),
    "measure_ceilings": (lambda: steptime.measure_ceilings("tpu"), "cpu, cuda"),
    "Limit.without": (lambda: LIMIT.without("inptu"), "The nearest is 'input'."),
    "Limit.bound": (lambda: LIMIT.bound("inptu"), "The nearest is 'input'."),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_the_most_likely_mistake_is_refused_in_words(name, home):
    call, words = ROWS[name]
    with pytest.raises(REFUSALS, match=re.escape(words)):
        call()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            lambda trace: trace.request("y"),
            "There is no array 'y' in this trace. The nearest: x.",
        ),
        (
            lambda trace: trace.count("y"),
            "There is no array 'y' in this trace. The nearest: x.",
        ),
        (
            lambda trace: trace.busiest("y"),
            "There is no array 'y' in this trace. The nearest: x.",
        ),
        (
            lambda trace: trace.writers("y"),
            "There is no array 'y' in this trace. The nearest: x.",
        ),
        (
            lambda trace: trace.paths(99),
            "Expected warp to be a whole number from 0 to 0, got 99.",
        ),
        (lambda trace: trace.estimate("H200 X"), "Nearest names: H200 SXM"),
        (
            lambda trace: trace.review().of("waste"),
            "Expected a kind out of float64, bank conflicts",
        ),
    ],
)
def test_a_trace_refuses_what_it_does_not_have(trace, ask, words):
    with pytest.raises(REFUSALS, match=re.escape(words)):
        ask(trace)
