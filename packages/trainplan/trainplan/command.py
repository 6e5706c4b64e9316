"""The command line's question as a plan: which model, which GPUs, and the layouts that
are calculated for them; without GPUs, which to take.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

from trainplan import deadlines
from trainplan._tables import ShownAsTable, Table
from trainplan._text import brief_repr, lookup
from trainplan.cluster.comparison import Differences
from trainplan.cluster.configurations import configuration
from trainplan.cluster.gpu_search import (
    ADAPTER_SEQUENCES,
    usual_batch,
    which_gpus,
)
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import SHORT, Layout
from trainplan.cluster.libraries import running, runs_dtype, usual_software
from trainplan.cluster.offers import RENTS, Offer, Offers, require_tokens
from trainplan.cluster.search import best_layout, even_batch, excess, habits
from trainplan.cluster.software import SOFTWARE, TORCH, Software
from trainplan.cluster.step_prediction import Step, sequences, step, steps_table
from trainplan.cluster.validation import HeldAgainst, held_against
from trainplan.costs import transformers
from trainplan.costs.hugging_face import model_from_config, unread_parts
from trainplan.costs.memory_costs import OPTIMIZER_STATES, PRECISIONS
from trainplan.costs.transformers import MODELS, Transformer
from trainplan.figures import require_picture

_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
# what --sizes may set of a Transformer: numbers, and what is so or not
_NUMBERS = (
    *("layers", "hidden", "heads", "vocab", "seq", "feed_forward", "kv_heads"),
    *("head_dim", "experts", "top_k", "shared", "dense", "window"),
    *("state_heads", "state_head_dim", "state_groups", "state_dim"),
)
_FLAGS = ("gated", "tied")
_PATTERN = "pattern"  # is text
_SIZE_NAMES = {name: name for name in (*_NUMBERS, *_FLAGS, _PATTERN)}
# numbers by their short names, as PRECISIONS calls what is computed in
_SHORT_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "fp8": "float8",
    "float8": "float8",
    "fp4": "float4",
    "nvfp4": "float4",
}
# a smaller width of shared experts is taken for their number
_LEAST_SHARED = 32
_COUNTED = re.compile(r"\s*([\d,_]+)\s*[x×*]\s*(.+?)\s*")
# what makes sense for GPUs that are named alone
_OF_GPUS = ("layout", "picture", "show", "measured", "offload-activations")


@dataclass(frozen=True, repr=False)
class Plan(ShownAsTable):
    """Calculated steps of one model on one cluster, the fastest first.

    `tokens` are those of the whole run, of which `offer` says what it takes with the
    first; `picture` is the file that was asked for, and `configuration` what the first
    is to its library. Where no GPUs were named, `gpus` are those to take, the best
    first, and the steps are theirs. `differences` are those of a measured run from a
    published one.
    """

    steps: tuple[Step, ...]
    tokens: float | None = None
    notes: tuple[str, ...] = ()
    picture: str | None = None
    offer: Offer | None = None
    gpus: Offers | None = None
    differences: Differences | None = None

    @property
    def holds(self) -> bool:
        """Whether the first fits or is tight, and its run keeps to the days and
        dollars.
        """
        if self.steps[0].too_large:
            return False
        return self.offer is None or self.offer.keeps != "no"

    @property
    def configuration(self) -> str:
        """The fastest step as its library is told it; empty where nothing here writes
        that, or it doesn't fit.
        """
        if self.gpus is not None or self.steps[0].too_large:
            return ""
        return configuration(self.steps[0])

    def table(self) -> Table:
        """The steps' table, with the notes below."""
        if self.gpus is not None:
            table = self.gpus.table()
            return replace(table, notes=(*table.notes, *self.notes))
        notes = self.notes
        if self.offer is not None:
            notes = (*self.offer.notes, *notes)
        return steps_table(self.steps, self.tokens, notes)


class _Bounds(NamedTuple):
    """What the run trains, and how many days and dollars it may take."""

    tokens: float | None
    days: float | None
    dollars: float | None
    rent: float | None  # US dollars a GPU hour


def asked(argv: Sequence[str] | None = None) -> Plan:
    """The plan that a command line asks for. Raises ValueError or RuntimeError
    with a sentence for what can't be planned.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    words = _parser().parse_args(arguments)
    if words.picture is not None:
        require_picture(words.picture)
    model, notes = _model(words)
    if words.sequence is not None:
        model = replace(model, seq=_whole(words.sequence, "--sequence"))
    bounds = _bounds(words)
    words.dtype, dtype_notes = _dtype(words.dtype, model, words.software)
    notes += dtype_notes
    if words.gpus is None:
        offers, batch_notes = _offers(words, model, bounds)
        notes += (*batch_notes, _next_command(arguments, offers.best))
        steps = tuple(offer.step for offer in offers.offers)
        return Plan(steps, bounds.tokens, notes, offer=offers.best, gpus=offers)
    if words.gpu is not None:
        raise ValueError(
            "Expected --gpus for a plan of these, or --gpu for how many are needed, got"
            " both."
        )
    require_tokens(model, bounds.tokens, bounds.days, bounds.dollars)
    steps, step_notes = _steps(words, model)
    notes += step_notes
    offer = _offer(steps[0], bounds)
    differences = None
    if words.measured is None and words.against is not None:
        raise ValueError(
            "Expected --measured beside --against, the tokens a second and GPU that the"
            " run reached; got none."
        )
    if words.measured is not None:
        held = _held(words, steps[0])
        notes = (f"The run: {held}.", *notes)
        differences = held.differences
    return Plan(
        steps, bounds.tokens, notes, words.picture, offer, differences=differences
    )


def _steps(
    words: argparse.Namespace, model: Transformer
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps of the layouts that are searched or given on --gpus, and notes."""
    cluster = _cluster(words.gpus, words.gpus_per_node)
    batch, batch_notes = _batch(
        words.global_batch, model, cluster, searched=words.layout is None
    )
    software = None if words.software is None else _software(words.software)
    if words.layout is None:
        others = None
        if words.show is not None:
            others = _whole(words.show, "--show", most=1000) - 1
        best = best_layout(
            model,
            cluster,
            batch,
            dtype=words.dtype,
            optimizer=words.optimizer or "adam",
            software=software,
            offload_activations=bool(words.offload_activations),
            runners_up=others,
        )
        return (best.step, *best.runners_up), (*batch_notes, *best.notes)
    layout = _layout(words.layout, cluster, words.dtype)
    layout = replace(
        layout,
        optimizer=words.optimizer or "adam",
        offload_activations=bool(words.offload_activations),
    )
    layout_step, layout_notes = _layout_step(
        model, cluster, layout, batch, software, words.dtype
    )
    return (layout_step,), (*batch_notes, *layout_notes)


def _held(words: argparse.Namespace, planned: Step) -> HeldAgainst:
    """A measured run beside the plan of its layout."""
    if words.layout is None:
        raise ValueError(
            "Expected --layout beside --measured, the layout that was measured, such as"
            " --layout tp=8,zero=1; got none."
        )
    speed = _amount(words.measured, "--measured")
    return held_against(
        planned.model,
        planned.cluster,
        planned.layout,
        planned.batch,
        speed,
        against=words.against,
    )


def _bounds(words: argparse.Namespace) -> _Bounds:
    """The run's tokens, days and dollars, as far as they are said."""
    if words.days is not None and words.by is not None:
        raise ValueError(
            "Expected --days or --by, got both. Say the days that there are, or the"
            " date."
        )
    days = None
    if words.by is not None:
        days = float(deadlines.days_until(words.by, deadlines.today()))
    elif words.days is not None:
        days = _amount(words.days, "--days", least=0.001, most=100_000)
    return _Bounds(
        None if words.tokens is None else _amount(words.tokens, "--tokens"),
        days,
        None if words.dollars is None else _dollars(words.dollars, "--dollars"),
        None if words.rent is None else _dollars(words.rent, "--rent"),
    )


def _dollars(text: str, name: str) -> float:
    """US dollars, with their sign or without."""
    plain = re.sub(
        r"^\s*(us)?\s*\$|\s*(us)?\s*(\$|usd|dollars?)\s*$", "", text.casefold()
    )
    return _amount(plain, name, least=0.01)


def _offer(planned: Step, bounds: _Bounds) -> Offer | None:
    """What a run takes with a step; None without its tokens."""
    if bounds.tokens is None:
        return None
    name = planned.cluster.gpu.name
    rent = bounds.rent
    if rent is None and name in RENTS:
        rent = RENTS[name].usd_per_gpu_hour
    return Offer(planned, bounds.tokens, bounds.days, bounds.dollars, rent)


def _offers(
    words: argparse.Namespace, model: Transformer, bounds: _Bounds
) -> tuple[Offers, tuple[str, ...]]:
    """Which GPUs to take, where none are given; with a note where the batch is
    rounded.
    """
    for name in _OF_GPUS:
        if getattr(words, name.replace("-", "_"), None) is not None:
            raise ValueError(
                f"Expected --gpus beside --{name}, such as --gpus 64xH100, got none."
            )
    batch = None
    notes: tuple[str, ...] = ()
    if words.global_batch is not None:
        batch, notes = _rounded_batch(words.global_batch, model)
    per_node = words.gpus_per_node
    offers = which_gpus(
        model,
        bounds.tokens,
        days=bounds.days,
        dollars=bounds.dollars,
        gpus=_gpu_names(words.gpu or []),
        gpus_per_node=None if per_node is None else _whole(per_node, "--gpus-per-node"),
        usd_per_gpu_hour=bounds.rent,
        batch=batch,
        dtype=words.dtype or "",
        optimizer=words.optimizer or "adam",
        software=None if words.software is None else _software(words.software),
    )
    return offers, notes


def _gpu_names(texts: Sequence[str]) -> list[str]:
    """The GPUs of --gpu, of which each may be several between commas."""
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if _COUNTED.fullmatch(name):
            raise ValueError(
                "Expected --gpu to name a GPU without a number, of which the best is"
                f" looked for, got {name!r}. For that number say --gpus {name}."
            )
    return names


def _next_command(arguments: Sequence[str], best: Offer) -> str:
    """How to see the whole plan of an offer: the same words, with its GPUs."""
    words = []
    left = iter(arguments)
    for word in left:
        if word == "--gpu":
            next(left)
        elif not word.startswith("--gpu="):
            words.append(word)
    cluster = best.step.cluster
    gpus = ["--gpus", f"{cluster.gpus}x{cluster.gpu.name}"]
    if cluster.gpus_per_node != 8 and "--gpus-per-node" not in words:
        gpus += ["--gpus-per-node", str(cluster.gpus_per_node)]
    # what comes after -- is no option
    end = words.index("--") if "--" in words else len(words)
    words[end:end] = gpus
    return (
        "The whole plan of the first, and its configuration: python -m trainplan"
        f" {shlex.join(words)}"
    )


def _layout_step(
    model: Transformer,
    cluster: Cluster,
    layout: Layout,
    batch: int,
    software: Software | None,
    dtype: str,
) -> tuple[Step, tuple[str, ...]]:
    """The step of a layout that was asked for, with notes on what runs it and whether
    it fits.
    """
    libraries = running(model, layout, own_dtype=not dtype)
    notes: tuple[str, ...] = ()
    if software is None:
        names = ", ".join(libraries) or "none that is known here"
        notes += (f"Libraries that run it: {names}.",)
        usual = usual_software(model, cluster.gpu)
        # else a program of one's own
        software = usual if usual.library in libraries else TORCH
    layout = replace(
        layout,
        software=habits(software, layout.pipeline),
        dtype=dtype or software.dtype,
    )
    layout_step = step(model, cluster, layout, batch)
    if layout_step.too_large:
        notes += (f"It does not fit. {excess(layout_step)}",)
    return layout_step, notes


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are sentences, like all others of the command."""

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with what is wrong, and the nearest option."""
        unknown = re.search(r"unrecognized arguments: (.*)", message)
        if unknown is None:
            raise ValueError(f"{message[:1].upper()}{message[1:]}. See --help.")
        word = unknown[1].split()[0]
        advice = ""
        if not word.startswith("-"):
            advice = (
                " A name with a space in it stands in quotes, and GPUs are said as"
                " --gpus 8xH100."
            )
        for option in difflib.get_close_matches(word, self._option_string_actions, 1):
            advice = f" The nearest is {option}."
        raise ValueError(f"Unknown: {unknown[1]}.{advice} See --help for all options.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m trainplan",
        usage=(
            "\n  python -m trainplan llama3.1-70b --gpus 512xH100"
            "\n  python -m trainplan llama3.1-8b --tokens 100e9 --days 5"
        ),
        description=(
            "Calculate the training step of a transformer on a cluster, for the"
            " fastest layouts or for the one that you give. Without --gpus, print which"
            " GPUs, and how many, hold the model, finish in time, or stay within a"
            " budget."
        ),
        epilog=(
            "MFU is the share of the peak that 6 N + 12 L h s FLOP a token take: N"
            " parameters (the active ones of a mixture of experts; 4 N for those that"
            " adapters leave as they are), L layers of width h, s tokens a sequence,"
            " and attention's full square. Exit status: 0 for a plan that fits, 2 for"
            " one that doesn't fit or isn't possible. A tight plan may fit, and has"
            " status 0. Models:"
            f" {', '.join(MODELS)}."
        ),
    )
    parser.add_argument(
        "model",
        nargs="?",
        help="its name as Hugging Face or its paper writes it, such as llama3.1-70b",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="read the model from Hugging Face's config.json",
    )
    parser.add_argument(
        "--sizes",
        metavar="layers=32,hidden=4096,heads=32",
        help=(
            f"a model of your own; names are {', '.join(_SIZE_NAMES)}; shared is the"
            " width of the experts that all tokens meet, together"
        ),
    )
    parser.add_argument(
        "--finetune",
        metavar="qlora:16",
        help=(
            "train only adapters of that rank: lora adds them to attention's products,"
            " qlora to all products of a block and keeps its weights in 4 bit;"
            " lora:16:linear and qlora:16:attention choose where; default: full"
        ),
    )
    parser.add_argument(
        "--optimizer",
        metavar="NAME",
        help=f"one of {', '.join(OPTIMIZER_STATES)}; default: adam",
    )
    parser.add_argument(
        "--offload-activations",
        action="store_true",
        default=None,
        help="keep what the backward pass needs in main memory",
    )
    parser.add_argument(
        "--gpus",
        metavar="NxGPU",
        help="how many GPUs, and which, such as 512xH100",
    )
    parser.add_argument(
        "--gpu",
        action="append",
        metavar="GPU[,GPU]",
        help="without --gpus: which GPUs to choose from; default: the usual ones",
    )
    parser.add_argument(
        "--gpus-per-node",
        metavar="N",
        help=(
            "default: 8; 16 for Trainium 2, 1 for GB10, 72 for names with NVL72, and"
            " without --gpus 64 for GB200"
        ),
    )
    parser.add_argument(
        "--global-batch",
        metavar="TOKENS",
        help=(
            "tokens per step; default: about 4 million, or for adapters"
            f" {ADAPTER_SEQUENCES} sequences per GPU"
        ),
    )
    parser.add_argument(
        "--sequence", metavar="N", help="tokens per sequence; default: the model's own"
    )
    parser.add_argument(
        "--layout",
        metavar="tp=8,pp=4",
        help=f"names are {', '.join(SHORT)}; default: search",
    )
    parser.add_argument(
        "--dtype",
        default="",
        metavar="NAME",
        help=(
            f"one of {', '.join(PRECISIONS)}; or bf16, fp16, fp8, fp4, fp32 for the"
            " library's own format of that kind; default: the library's own"
        ),
    )
    parser.add_argument(
        "--software",
        metavar="NAME",
        # a preset's name has a comma
        help=f"one of {'; '.join(SOFTWARE)}. Default: torchtitan, TRL for adapters,"
        " MaxText on TPUs",
    )
    parser.add_argument(
        "--tokens", metavar="T", help="tokens of the whole run, such as 15e12"
    )
    parser.add_argument("--days", metavar="N", help="days that the run may take")
    parser.add_argument(
        "--by",
        metavar="DATE",
        help="instead of --days, its last day: 2026-12-04, 4 Dec, Friday",
    )
    parser.add_argument(
        "--dollars", metavar="N", help="US dollars of rent that the run may cost"
    )
    parser.add_argument(
        "--rent",
        metavar="N",
        help="US dollars per GPU hour; default: from a published list",
    )
    parser.add_argument(
        "--picture",
        metavar="FILE",
        help="draw the layouts to a PNG, PDF or SVG; needs matplotlib",
    )
    parser.add_argument(
        "--measured",
        metavar="SPEED",
        help=(
            "tokens per second and GPU that your run of --layout reached: prints how it"
            " differs from the most similar published run, and what each difference is"
            " worth"
        ),
    )
    parser.add_argument(
        "--against",
        metavar="LABEL",
        help="compare --measured with the published run of this label instead",
    )
    parser.add_argument(
        "--show",
        metavar="N",
        help=(
            "how many layouts a search shows: the recommended one, then the fastest;"
            " default: three of different kinds"
        ),
    )
    return parser


def _software(name: str) -> Software:
    presets = {preset.casefold(): preset for preset in SOFTWARE}
    preset = presets.get(name.casefold(), name)
    return lookup(preset, SOFTWARE, "--software")


def _dtype(
    text: str, model: Transformer, software_name: str | None
) -> tuple[str, tuple[str, ...]]:
    """A precision by its name, or by a number's such as bf16: then the library's own,
    or the first that it runs, with a note.
    """
    kind = _SHORT_DTYPES.get(text.strip().casefold())
    if kind is None:
        return text, ()
    software = usual_software(model)
    if software_name is not None:
        software = _software(software_name)
    names = [software.dtype, *PRECISIONS]
    in_kind = [name for name in names if PRECISIONS[name].compute_dtype == kind]
    run = [name for name in in_kind if runs_dtype(model, name, software.library)]
    name = (run or in_kind)[0]
    return name, (f"--dtype {text} is taken as {name}.",)


def _model(words: argparse.Namespace) -> tuple[Transformer, tuple[str, ...]]:
    """The model by its name, its file or its sizes, with a note where a name stands for
    another.
    """
    ways = {
        "a name": words.model,
        "--config": words.config,
        "--sizes": words.sizes,
    }
    chosen = [way for way, value in ways.items() if value is not None]
    if len(chosen) != 1:
        raise ValueError(
            "Expected the model as a name such as llama3.1-70b, by --config or by"
            f" --sizes, got {' and '.join(chosen) or 'none'}."
        )
    notes: tuple[str, ...] = ()
    if words.config is not None:
        model = model_from_config(words.config)
        parts = " and ".join(unread_parts(words.config))
        if parts:
            notes = (f"The plan is for the text model alone, without {parts}.",)
    elif words.sizes is not None:
        model = _sized(words.sizes)
    else:
        model = transformers.model(words.model)
        plain = transformers.plain_name(words.model)
        if plain != transformers.plain_name(model.name):
            notes = (f"{words.model} is taken to be {model}.",)
    if words.finetune not in (None, "full"):
        model = replace(model, **_adapters(words.finetune))
    return model, notes


def _sized(text: str) -> Transformer:
    """The Transformer of a text such as "layers=32,hidden=4096,heads=32"."""
    fields: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        field = lookup(name.strip(), _SIZE_NAMES, "a part of --sizes before its =")
        if field in _FLAGS:
            fields[field] = True
        elif field == _PATTERN:
            fields[field] = value.strip()
        else:
            fields[field] = _whole(value, name, least=0)
    missing = [name for name in ("layers", "hidden", "heads") if name not in fields]
    if missing:
        raise ValueError(f"Expected {', '.join(missing)} in --sizes, got {text!r}.")
    shared = fields.get("shared", 0)
    if 0 < shared < _LEAST_SHARED:
        raise ValueError(
            "Expected shared in --sizes to be a width, such as 2816 for two shared"
            f" experts of width 1408, got {shared}."
        )
    return Transformer(**fields, name="your model")


def _adapters(text: str) -> dict[str, Any]:
    """The fields of a Transformer that "lora:16" or "qlora:16:attention" says."""
    method, rank, place, *more = [*text.split(":"), "", ""][:4]
    usual = {"lora": "attention", "qlora": "linear"}
    adapted = place or usual.get(method, "")
    if not (method in usual and rank and adapted in usual.values()) or any(more):
        raise ValueError(
            "Expected --finetune to be full, lora:RANK or qlora:RANK, such as lora:16,"
            f" with :linear or :attention behind, got {text}."
        )
    return {
        "adapters": _whole(rank, "the rank of --finetune"),
        "adapted": adapted,
        "quantized": method == "qlora",
    }


def _cluster(gpus: str, per_node: str | None) -> Cluster:
    """The cluster of a text such as "512xH100"."""
    match = _COUNTED.fullmatch(gpus)
    if match is None:
        raise ValueError(
            f"Expected --gpus to be a number and a GPU, such as 512xH100, got {gpus!r}."
            f" For how many are needed, say --gpu {gpus.strip() or 'H100'}."
        )
    count = _whole(match[1], "--gpus", most=10_000_000)
    in_node = 0 if per_node is None else _whole(per_node, "--gpus-per-node")
    return Cluster(match[2], count, in_node)


def _batch(
    tokens: str | None, model: Transformer, cluster: Cluster, searched: bool
) -> tuple[int, tuple[str, ...]]:
    """Sequences a step: the nearest whole number, or about USUAL_TOKENS in a multiple
    of the GPUs or a part of them.

    With notes where the number is not what was asked for, and where a search has few
    data ranks that divide it.
    """
    if tokens is None:
        return usual_batch(model, cluster.gpus), ()
    batch, notes = _rounded_batch(tokens, model)
    most, near = even_batch(model, cluster, batch)
    if searched and near != batch:
        notes += (
            f"At most {most:,} data ranks divide {batch:,} sequences, more divide"
            f" {sequences(near, model)}: --global-batch {near * model.seq}.",
        )
    return batch, notes


def _rounded_batch(tokens: str, model: Transformer) -> tuple[int, tuple[str, ...]]:
    """The sequences of so many tokens, with a note where they aren't a whole number."""
    amount = _amount(tokens, "--global-batch")
    batch = max(round(amount / model.seq), 1)
    if batch * model.seq == amount:
        return batch, ()
    return batch, (f"--global-batch {tokens} is rounded to {sequences(batch, model)}.",)


def _layout(text: str, cluster: Cluster, dtype: str) -> Layout:
    """The Layout of a text such as "tp=8,pp=4"; without dp, all ranks that are left are
    data ranks.
    """
    fields: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        field = lookup(name.strip(), SHORT, "a part of --layout before its =")
        if field in fields:
            raise ValueError(
                f"Expected each part of --layout once, got {name.strip()} twice in"
                f" {text!r}."
            )
        if field in ("recompute", "balance"):
            fields[field] = value.strip()
        else:
            fields[field] = _whole(value, name, least=0)
    layout = Layout(**fields, dtype=dtype)
    if "data" in fields:
        return layout
    return replace(layout, data=max(cluster.gpus // layout.gpus, 1))


def _whole(text: str, name: str, least: int = 1, most: float = 1e18) -> int:
    amount = _amount(text, name, least, most)
    if amount != int(amount):
        raise ValueError(f"Expected {name} to be a whole number, got {text!r}.")
    return int(amount)


def _amount(text: str, name: str, least: float = 1, most: float = 1e18) -> float:
    """A number as people write it: 4194304, 4_194_304, 4,194,304, 15e12, 15T."""
    match = re.fullmatch(
        r"\s*(\d[\d_,]*(?:\.\d+)?(?:e\+?\d\d?)?)\s*([kmbt]?)\s*", text.casefold()
    )
    amount = -1.0
    if match is not None:
        amount = float(re.sub("[_,]", "", match[1])) * _SIZES[match[2]]
    if not least <= amount <= most:
        bound = f"most {most:,}" if amount > most else f"least {least:g}"
        raise ValueError(
            f"Expected {name} to be a number of at {bound}, such as 8 or 15e12, got"
            f" {brief_repr(text)}."
        )
    return amount
