"""The command line's question as a plan: which model, which GPUs, and the layouts that
are calculated for them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainplan.arguments import require_picture
from trainplan.cluster.configurations import configuration
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import SHORT, Layout
from trainplan.cluster.libraries import running
from trainplan.cluster.search import best_layout, even_batch, habits, require_fit
from trainplan.cluster.software import SOFTWARE, TORCH, TORCHTITAN
from trainplan.cluster.step_prediction import Step, sequences, step, steps_table
from trainplan.costs.memory_costs import PRECISIONS
from trainplan.costs.transformers import MODELS, Transformer
from trainplan.errors import BadArgument, LayoutError, brief_repr, lookup, nearest
from trainplan.facts.devices import find, matching
from trainplan.tables import ShownAsTable, Table

_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
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
    """The plan that a command line asks for. Raises PlanError with a sentence for what
    can't be planned.
    """
    words = _parser().parse_args(argv)
    if words.picture is not None:
        require_picture(words.picture)
    model = _model(words.model)
    if words.sequence is not None:
        model = replace(model, seq=_whole(words.sequence, "--sequence"))
    cluster, notes = _cluster(words.gpus, words.gpus_per_node)
    batch, rounded = _batch(
        words.global_batch, model, cluster, searched=words.layout is None
    )
    notes += rounded
    tokens = None if words.tokens is None else _amount(words.tokens, "--tokens")
    known = {name.casefold(): one for name, one in SOFTWARE.items()}
    software = (
        None
        if words.software is None
        else lookup(words.software.casefold(), known, "--software")
    )
    if words.layout is None:
        best = best_layout(
            model, cluster, batch, dtype=words.dtype, software=software or TORCHTITAN,
            runners_up=_whole(words.show, "--show", most=1000) - 1,
        )  # fmt: skip
        return Plan(
            (best.step, *best.runners_up), tokens, (*notes, *best.notes), words.picture
        )
    layout = _layout(words.layout, cluster, words.dtype)
    runs = running(model, layout)
    own = TORCHTITAN if TORCHTITAN.library in runs else TORCH  # a program of one's own
    layout = replace(layout, software=habits(software or own, layout.pipeline))
    one = step(model, cluster, layout, batch)
    if software is None:
        notes += (
            f"Libraries that run it: {', '.join(runs) or 'none that is known here'}.",
        )
    if not one.fits:
        try:
            require_fit(one)
        except LayoutError as error:
            notes += (f"It does not fit. {error}",)
    return Plan((one,), tokens, notes, words.picture)


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
    parser.add_argument("model", help="such as llama3-70b")
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


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9.]|\.(?!\d)", "", name.casefold())


def _model(name: str) -> Transformer:
    """The model whose name is this one, or the only one whose name begins with it,
    whatever the case and hyphens.

    A beginning that ends inside a number is none: 22B isn't a 2.
    """
    keys = {_key(known): model for known, model in MODELS.items()}
    key = _key(name)
    close = [model for known, model in keys.items() if key and known.startswith(key)]
    inside = [
        model
        for model in close
        if re.match(r"\d\.?\d", _key(model.name)[len(key) - 1 :])
    ]
    if key in keys or (len(close) == 1 and not inside):
        return keys.get(key) or close[0]
    near = [model.name for model in close] or nearest(name, MODELS)
    raise BadArgument(
        f"Expected a model such as llama3-70b, got {name!r}. The nearest are"
        f" {', '.join(near)}."
    )


def _cluster(gpus: str, per_node: str) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster; of several GPUs of a name the SXM board with the most memory, and a
    note that says so.
    """
    match = re.fullmatch(r"\s*([\d,_]+)\s*[x×*]\s*(.+?)\s*", gpus)
    if match is None:
        raise BadArgument(
            f"Expected --gpus to be a number and a GPU, such as 512xH100, got {gpus!r}."
        )
    count = _whole(match[1], "--gpus", most=10_000_000)
    known = matching(match[2])
    if not known:
        find(match[2])  # which says what is near
    chosen = max(known, key=lambda one: ("SXM" in one.name, one.memory_bytes or 0.0))
    others = ", ".join(one.name for one in known if one is not chosen)
    more = f"; others of that name: {others}" * bool(others)
    notes = (
        (f"{match[2]!r} is taken for {chosen.name}{more}.",)
        if _key(match[2]) != _key(chosen.name)
        else ()
    )
    return Cluster(chosen, count, _whole(per_node, "--gpus-per-node")), notes


def _batch(
    tokens: str | None, model: Transformer, cluster: Cluster, searched: bool
) -> tuple[int, tuple[str, ...]]:
    """Sequences a step: the nearest whole number, or about USUAL_TOKENS in a multiple
    of the GPUs or a part of them.

    With notes where the number is not what was asked for, and where a search has few
    data ranks that divide it.
    """
    if tokens is None:
        many = USUAL_TOKENS / model.seq
        unit = cluster.gpus
        while unit > many / 8 and unit % 2 == 0:
            unit //= 2
        return max(round(many / unit), 1) * unit, ()
    amount = _amount(tokens, "--global-batch")
    batch = max(round(amount / model.seq), 1)
    most, near = even_batch(model, cluster, batch)
    notes = {
        f"--global-batch {tokens} is rounded to {sequences(batch, model)}.": (
            batch * model.seq != amount
        ),
        (
            f"At most {most:,} data ranks divide {batch:,} sequences, more divide"
            f" {sequences(near, model)}: --global-batch {near * model.seq}."
        ): searched and near != batch,
    }
    return batch, tuple(note for note, holds in notes.items() if holds)


def _layout(text: str, cluster: Cluster, dtype: str) -> Layout:
    """The Layout of a text such as "tp=8,pp=4"; without dp, all ranks that are left are
    data ranks.
    """
    given: dict[str, int | str] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        field = lookup(name.strip(), SHORT, "a part of --layout before its =")
        if field in given:
            raise BadArgument(
                f"Expected each part of --layout once, got {name.strip()} twice in"
                f" {text!r}."
            )
        given[field] = (
            value.strip() if field == "recompute" else _whole(value, name, least=0)
        )
    layout = Layout(**given, dtype=dtype)  # type: ignore[arg-type]  # Layout judges them
    return (
        layout
        if "data" in given
        else replace(layout, data=max(cluster.gpus // layout.gpus, 1))
    )


def _whole(text: str, name: str, least: int = 1, most: float = 1e18) -> int:
    amount = _amount(text, name, least, most)
    if amount != int(amount):
        raise BadArgument(f"Expected {name} to be a whole number, got {text!r}.")
    return int(amount)


def _amount(text: str, name: str, least: float = 1, most: float = 1e18) -> float:
    """A number as people write it: 4194304, 4_194_304, 4,194,304, 15e12, 15T."""
    match = re.fullmatch(
        r"\s*(\d[\d_,]*(?:\.\d+)?(?:e\+?\d\d?)?)\s*([kmbt]?)\s*", text.casefold()
    )
    amount = (
        -1.0
        if match is None
        else float(re.sub("[_,]", "", match[1])) * _SIZES[match[2]]
    )
    if not least <= amount <= most:
        bound = f"most {most:,}" if amount > most else f"least {least:g}"
        raise BadArgument(
            f"Expected {name} to be a number of at {bound}, such as 8 or 15e12, got"
            f" {brief_repr(text)}."
        )
    return amount
