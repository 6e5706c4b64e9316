"""The command line's question as a plan: which model, which GPUs, and the layouts that
are calculated for them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainplan._tables import ShownAsTable, Table
from trainplan._text import brief_repr, lookup
from trainplan.cluster.configurations import configuration
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import SHORT, Layout
from trainplan.cluster.libraries import running
from trainplan.cluster.search import best_layout, even_batch, habits, require_fit
from trainplan.cluster.software import SOFTWARE, TORCH, TORCHTITAN, Software
from trainplan.cluster.step_prediction import Step, sequences, step, steps_table
from trainplan.costs import transformers
from trainplan.costs.hugging_face import model_from_config
from trainplan.costs.memory_costs import PRECISIONS
from trainplan.costs.transformers import MODELS, Transformer
from trainplan.errors import LayoutError
from trainplan.figures import require_picture

_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
# what --sizes may set of a Transformer: numbers, and what is so or not
_NUMBERS = (
    *("layers", "hidden", "heads", "vocab", "seq", "feed_forward", "kv_heads"),
    *("head_dim", "experts", "top_k", "shared", "dense"),
)
_FLAGS = ("gated", "tied")
_SIZE_NAMES = {name: name for name in (*_NUMBERS, *_FLAGS)}
USUAL_TOKENS = 4 * 2**20  # a step, where nothing else is asked for


@dataclass(frozen=True, repr=False)
class Plan(ShownAsTable):
    """Calculated steps of one model on one cluster, the fastest first.

    `tokens` are those of the whole run, `picture` the file that was asked for, and
    `configuration` what the fastest is to its library.
    """

    steps: tuple[Step, ...]
    tokens: float | None = None
    notes: tuple[str, ...] = ()
    picture: str | None = None

    @property
    def configuration(self) -> str:
        """The fastest step as its library is told it; empty where nothing here writes
        that, or it doesn't fit.
        """
        return configuration(self.steps[0]) if self.steps[0].fits else ""

    def table(self) -> Table:
        """The steps' table, with the notes below."""
        return steps_table(self.steps, self.tokens, self.notes)


def asked(argv: Sequence[str] | None = None) -> Plan:
    """The plan that a command line asks for. Raises ValueError or RuntimeError
    with a sentence for what can't be planned.
    """
    words = _parser().parse_args(argv)
    if words.picture is not None:
        require_picture(words.picture)
    model, notes = _model(words)
    if words.sequence is not None:
        model = replace(model, seq=_whole(words.sequence, "--sequence"))
    cluster = _cluster(words.gpus, words.gpus_per_node)
    batch, batch_notes = _batch(
        words.global_batch, model, cluster, searched=words.layout is None
    )
    notes += batch_notes
    tokens = None if words.tokens is None else _amount(words.tokens, "--tokens")
    software = None if words.software is None else _software(words.software)
    if words.layout is None:
        shown = _whole(words.show, "--show", most=1000)
        best = best_layout(
            model,
            cluster,
            batch,
            dtype=words.dtype,
            software=software or TORCHTITAN,
            runners_up=shown - 1,
        )
        steps = (best.step, *best.runners_up)
        notes += best.notes
    else:
        layout = _layout(words.layout, cluster, words.dtype)
        layout_step, layout_notes = _layout_step(
            model, cluster, layout, batch, software
        )
        steps = (layout_step,)
        notes += layout_notes
    return Plan(steps, tokens, notes, words.picture)


def _layout_step(
    model: Transformer,
    cluster: Cluster,
    layout: Layout,
    batch: int,
    software: Software | None,
) -> tuple[Step, tuple[str, ...]]:
    """The step of a layout that was asked for, with notes on what runs it and whether
    it fits.
    """
    libraries = running(model, layout)
    notes: tuple[str, ...] = ()
    if software is None:
        names = ", ".join(libraries) or "none that is known here"
        notes += (f"Libraries that run it: {names}.",)
        # else a program of one's own
        software = TORCHTITAN if TORCHTITAN.library in libraries else TORCH
    layout = replace(layout, software=habits(software, layout.pipeline))
    layout_step = step(model, cluster, layout, batch)
    try:
        require_fit(layout_step)
    except LayoutError as error:
        notes += (f"It does not fit. {error}",)
    return layout_step, notes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainplan",
        description=(
            "Calculate a training step of a transformer on a cluster: the fastest"
            " layouts, or the given one."
        ),
        epilog=(
            "MFU is the share of the peak that 6 N + 12 L h s FLOP a token take: N"
            " parameters, L layers of width h, s tokens a sequence, and attention's"
            " full square. Exit status: 0 for a plan that fits, 2 for one that doesn't"
            f" or can't be. Models: {', '.join(MODELS)}."
        ),
    )
    parser.add_argument(
        "model",
        nargs="?",
        help="such as llama3.1-70b, as Hugging Face or its paper writes it",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="a model by its config.json of Hugging Face's"
    )
    parser.add_argument(
        "--sizes",
        metavar="layers=32,hidden=4096,heads=32",
        help=f"a model of your own, of {', '.join(_SIZE_NAMES)}",
    )
    parser.add_argument(
        "--finetune", metavar="lora:16", help="train adapters alone; default: full"
    )
    parser.add_argument(
        "--gpus",
        required=True,
        metavar="NxGPU",
        help="how many of which, such as 512xH100",
    )
    parser.add_argument("--gpus-per-node", default="8", metavar="N", help="default: 8")
    parser.add_argument(
        "--global-batch",
        metavar="TOKENS",
        help="tokens a step; default: about 4 million",
    )
    parser.add_argument(
        "--sequence", metavar="N", help="tokens a sequence; default: the model's own"
    )
    parser.add_argument(
        "--layout", metavar="tp=8,pp=4", help=f"of {', '.join(SHORT)}; default: search"
    )
    parser.add_argument(
        "--dtype", default="mixed bfloat16", help=f"one of {', '.join(PRECISIONS)}"
    )
    parser.add_argument(
        "--software",
        metavar="NAME",
        help=f"one of {', '.join(SOFTWARE)}; default: torchtitan",
    )
    parser.add_argument(
        "--tokens", metavar="T", help="tokens of the whole run, such as 15e12"
    )
    parser.add_argument(
        "--picture",
        metavar="FILE",
        help="draw the layouts to a PNG, PDF or SVG; needs matplotlib",
    )
    parser.add_argument(
        "--show",
        default="5",
        metavar="N",
        help="how many layouts a search shows; default: 5",
    )
    return parser


def _software(name: str) -> Software:
    presets = {preset.casefold(): software for preset, software in SOFTWARE.items()}
    return lookup(name.casefold(), presets, "--software")


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
    elif words.sizes is not None:
        model = _sized(words.sizes)
    else:
        model = transformers.model(words.model)
        plain = transformers.plain_name(words.model)
        if plain != transformers.plain_name(model.name):
            notes = (f"{words.model} is taken to be {model}.",)
    if words.finetune not in (None, "full"):
        model = replace(model, adapters=_adapters(words.finetune))
    return model, notes


def _sized(text: str) -> Transformer:
    """The Transformer of a text such as "layers=32,hidden=4096,heads=32"."""
    fields: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        field = lookup(name.strip(), _SIZE_NAMES, "a part of --sizes before its =")
        fields[field] = True if field in _FLAGS else _whole(value, name, least=0)
    missing = [name for name in ("layers", "hidden", "heads") if name not in fields]
    if missing:
        raise ValueError(f"Expected {', '.join(missing)} in --sizes, got {text!r}.")
    return Transformer(**fields, name="your model")


def _adapters(text: str) -> int:
    """The rank of "lora:16"."""
    method, _, rank = text.partition(":")
    if method != "lora":
        raise ValueError(
            f"Expected --finetune to be full or lora:RANK, such as lora:16, got {text}."
        )
    return _whole(rank, "the rank of --finetune")


def _cluster(gpus: str, per_node: str) -> Cluster:
    """The cluster of a text such as "512xH100"."""
    match = re.fullmatch(r"\s*([\d,_]+)\s*[x×*]\s*(.+?)\s*", gpus)
    if match is None:
        raise ValueError(
            f"Expected --gpus to be a number and a GPU, such as 512xH100, got {gpus!r}."
        )
    count = _whole(match[1], "--gpus", most=10_000_000)
    return Cluster(match[2], count, _whole(per_node, "--gpus-per-node"))


def _batch(
    tokens: str | None, model: Transformer, cluster: Cluster, searched: bool
) -> tuple[int, tuple[str, ...]]:
    """Sequences a step: the nearest whole number, or about USUAL_TOKENS in a multiple
    of the GPUs or a part of them.

    With notes where the number is not what was asked for, and where a search has few
    data ranks that divide it.
    """
    if tokens is None:
        usual = USUAL_TOKENS / model.seq
        unit = cluster.gpus
        while unit > usual / 8 and unit % 2 == 0:
            unit //= 2
        return max(round(usual / unit), 1) * unit, ()
    amount = _amount(tokens, "--global-batch")
    batch = max(round(amount / model.seq), 1)
    most, near = even_batch(model, cluster, batch)
    notes = []
    if batch * model.seq != amount:
        rounded = sequences(batch, model)
        notes.append(f"--global-batch {tokens} is rounded to {rounded}.")
    if searched and near != batch:
        notes.append(
            f"At most {most:,} data ranks divide {batch:,} sequences, more divide"
            f" {sequences(near, model)}: --global-batch {near * model.seq}."
        )
    return batch, tuple(notes)


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
        if field == "recompute":
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
