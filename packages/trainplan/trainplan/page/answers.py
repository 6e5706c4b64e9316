"""What the page shows: a form's fields in, plain dicts out. Runs in the browser, and in
any Python.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gpufacts
from trainplan._tables import Table
from trainplan._units import format_bytes, format_seconds
from trainplan.cluster.configurations import configuration
from trainplan.cluster.step_prediction import Step
from trainplan.command import Plan, asked

OPTIONS = {
    "config": "--config",
    "sizes": "--sizes",
    "gpus_per_node": "--gpus-per-node",
    "run_tokens": "--tokens",
    "days": "--days",
    "dollars": "--dollars",
    "rent": "--rent",
    "step_tokens": "--global-batch",
    "sequence": "--sequence",
    "library": "--software",
    "precision": "--dtype",
    "optimizer": "--optimizer",
    "finetune": "--finetune",
    "offload": "--offload-activations",
    "layout": "--layout",
    "measured": "--measured",
}
"""The option of the command line that a field stands for."""

LABELS = {
    "--gpu": "GPU",
    "--gpus": "GPUs",
    "--config": "config.json",
    "--sizes": "Sizes",
    "--gpus-per-node": "GPUs in a node",
    "--tokens": "Tokens of the run",
    "--days": "Days at most",
    "--dollars": "US$ at most",
    "--rent": "US$ a GPU hour",
    "--global-batch": "Tokens a step",
    "--sequence": "Tokens a sequence",
    "--software": "Library",
    "--dtype": "Precision",
    "--optimizer": "Optimizer",
    "--finetune": "Fine-tuning",
    "--offload-activations": "Activations",
    "--layout": "Layout",
    "--measured": "Measured tokens/s a GPU",
}
"""The page's label of an option, which stands for it in messages."""

_FLAGS = ("offload",)  # options without a value

FIELDS = ("way", "model", "gpu", "gpus", *OPTIONS)
"""Names of the form's fields. `way` says which of model, config and sizes is meant."""


def reply(question: str) -> str:
    """The answer to a question, both as JSON: {"kind": "plan" or "gpu", "fields": ...}.

    Only the fields that are filled in are in `fields`.
    """
    asks = json.loads(question)
    answer_to = {"plan": plan, "gpu": which_gpu}[asks["kind"]]
    return json.dumps(answer_to(asks["fields"]))


def plan(fields: Mapping[str, str]) -> dict[str, Any]:
    """What the planner answers to the form's fields.

    Always `command` (what a terminal would be told) and `error` (a sentence, or empty);
    without an error `title` (lines), `headings`, `rows` (of cells), `notes`, of each
    row in `plans` its time and memory by part and its configuration, in `finds_gpus`
    whether rows are GPUs to take, and in `differences` the table of a measured run, or
    None.
    """
    words = {name: text.strip() for name, text in fields.items() if text.strip()}
    with _config_file(words) as arguments:
        command = _as_typed(arguments)
        try:
            _check_gpus(words)
            answer = _plan(arguments)
        except (ValueError, RuntimeError) as error:
            return {"command": command, "error": _with_labels(str(error))}
    return {"command": command, "error": "", **answer}


def _check_gpus(words: Mapping[str, str]) -> None:
    """ValueError where the number of GPUs isn't one, or stands alone."""
    if "gpus" not in words:
        return
    is_number = re.fullmatch(r"[\d,_]+", words["gpus"]) is not None
    if "gpu" not in words and is_number:
        raise ValueError("Expected a GPU, such as H100, beside its number, got none.")
    if "gpu" in words and not is_number:
        raise ValueError(
            "Expected --gpus to be a whole number, such as 64, got"
            f" {words['gpus']!r:.40}."
        )


def _plan(arguments: list[str]) -> dict[str, Any]:
    """The answer to the command line's arguments."""
    calculated = asked(arguments)
    differences = None
    if calculated.differences is not None:
        differences = _table(calculated.differences.table())
    shown = _table(calculated.table())
    shown["notes"] = _notes(shown["notes"], calculated)
    plans = [_details(step) for step in calculated.steps]
    return {
        **shown,
        "plans": plans,
        "finds_gpus": calculated.gpus is not None,
        "differences": differences,
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title.splitlines(),
        "headings": table.headings,
        "rows": table.rows,
        "notes": table.notes,
    }


def _notes(notes: Iterable[str], calculated: Plan) -> list[str]:
    """The notes in the page's words, without what it shows elsewhere: what the first
    layout's time is worth, and the next command.
    """
    worth = f" Of the first: {calculated.steps[0].worth}."
    return [
        _with_labels(note.replace(worth, ""))
        for note in notes
        if "python -m trainplan" not in note
    ]


@contextlib.contextmanager
def _config_file(words: Mapping[str, str]) -> Iterator[list[str]]:
    """The arguments of the command line, with the file of a pasted config.json."""
    way = words.get("way", "name")
    with tempfile.TemporaryDirectory() as folder:
        values = dict(words)
        if way == "config":
            # a model without a name gets its folder's
            path = Path(folder, "your model", "config.json")
            path.parent.mkdir()
            path.write_text(words.get("config", ""), encoding="utf-8")
            values["config"] = str(path)
        yield list(_arguments(values, way))


def _arguments(values: Mapping[str, str], way: str) -> Iterator[str]:
    """`--option=value`, which argparse takes whatever the value begins with."""
    if "gpus" in values and "gpu" in values:
        yield f"--gpus={values['gpus']}x{values['gpu']}"
    elif "gpus" in values:
        yield f"--gpus={values['gpus']}"
    elif "gpu" in values:
        yield f"--gpu={values['gpu']}"
    for field, option in OPTIONS.items():
        of_another_way = field in ("config", "sizes") and field != way
        if field not in values or of_another_way:
            continue
        yield option if field in _FLAGS else f"{option}={values[field]}"
    if way == "name" and "model" in values:
        yield from ("--", values["model"])


def _as_typed(arguments: list[str]) -> str:
    """The command line of these arguments as people write it, the model first."""
    words = ["python", "-m", "trainplan"]
    options = arguments
    if "--" in arguments:
        *options, _, model = arguments
        words.append(model)
    for argument in options:
        option, _, value = argument.partition("=")
        if option == "--config":
            words += [option, "config.json"]
        elif "=" in argument and not value.startswith("-"):
            words += [option, value]
        else:
            words.append(argument)
    return shlex.join(words)


def _with_labels(message: str) -> str:
    """A message in the page's words: labels for options, and no temporary folder."""
    text = re.sub(r"\S*/your model/config\.json", "config.json", message)

    def label(match: re.Match[str]) -> str:
        return f"“{LABELS[match[0]]}”"

    longest_first = sorted(LABELS, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), label, text)


def _details(step: Step) -> dict[str, Any]:
    """One layout: what it takes, by part, and what its library is configured with."""
    low, high = step.memory_interval_bytes
    memory_worth = (
        f"Eight of ten published steps would be within {format_bytes(low)} to"
        f" {format_bytes(high)}."
    )
    return {
        "gpu": step.cluster.gpu.name,
        "gpus": step.cluster.gpus,
        "name": f"{step.layout}, {step.layout.dtype}",
        "verdict": step.verdict,
        "worth": f"{step.worth}.",
        "seconds": format_seconds(step.seconds),
        "time": _parts(step.parts, format_seconds),
        "memory_bytes": step.memory_bytes,
        "memory_text": format_bytes(step.memory_bytes),
        "capacity_bytes": step.capacity_bytes,
        "capacity_text": format_bytes(step.capacity_bytes),
        "memory": _parts(step.memory, format_bytes),
        "memory_interval_bytes": (low, high),
        "memory_worth": memory_worth,
        "configuration": "" if step.too_large else configuration(step),
    }


def _parts(
    amounts: Mapping[str, float], text_of: Callable[[float], str]
) -> list[dict[str, Any]]:
    """Name, amount, text and share (0 to 1) of each part, and its `place` among all
    of them; those of next to nothing left out.
    """
    whole = sum(amounts.values())
    parts: list[dict[str, Any]] = [
        {
            "place": place,
            "part": part,
            "amount": amount,
            "text": text_of(amount),
            "share": amount / whole,
        }
        for place, (part, amount) in enumerate(amounts.items())
    ]
    return [part for part in parts if part["share"] >= 0.0005]


def which_gpu(fields: Mapping[str, str]) -> dict[str, Any]:
    """What gpufacts says of the GPU whose name is in `which`: `name`, `assumed` (how a
    short name was read), `facts` (label and text) and `notes`; or an `error`.
    """
    try:
        device = gpufacts.find(fields.get("which", ""))
    except gpufacts.UnknownDevice as error:
        return {"error": str(error)}
    notes = []
    if device.unread:
        notes.append("* recalled or derived, not read from the source")
    return {
        "error": "",
        "name": str(device),
        "assumed": device.assumed,
        "facts": gpufacts.facts(device),
        "notes": notes,
    }
