"""Which GPUs to take: the fewest that hold a model, the cheapest that end in time, and
the fastest for a sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from gpufacts import Device, find
from trainplan._text import brief_repr
from trainplan.arguments import (
    ANYTHING,
    Count,
    Dtype,
    NonNegative,
    Positive,
    checked,
)
from trainplan.cluster.constants import MEDIAN_LEFT_OUT
from trainplan.cluster.hardware import Cluster
from trainplan.cluster.layout import Layout
from trainplan.cluster.libraries import usual_software
from trainplan.cluster.offers import RENTS, Offer, Offers, require_tokens
from trainplan.cluster.rank_memory import STATES, memory
from trainplan.cluster.rank_share import rank_share
from trainplan.cluster.search import best_layout
from trainplan.cluster.software import Software
from trainplan.costs.memory_costs import precision
from trainplan.costs.transformers import Transformer
from trainplan.errors import LayoutError

MOST_GPUS = 16_384
USUAL_TOKENS = 4 * 2**20  # a step, where nothing else is asked for
# A step and GPU of adapters. Source: pytorch/torchtune,
# recipes/configs/llama3_1/8B_qlora_single_device.yaml and others (bd2a0fc7): 8 times 2.
ADAPTER_SEQUENCES = 16
USUAL_NODE = 8  # GPUs of a machine that isn't in RENTS
_MOST_CARDS = 256  # without NVLink, where no GPU is named
_WORTH_DAYS = 1 / 24  # more GPUs that save less than an hour aren't worth it


class _Machine(NamedTuple):
    """A GPU, how many of it a node has, its rent in US dollars an hour, and how many
    are tried at most.
    """

    device: Device
    gpus_per_node: int
    usd_per_gpu_hour: float | None
    most: int


class _Question(NamedTuple):
    """What is asked of every machine; `search` are the words of best_layout."""

    model: Transformer
    batch: int | None
    tokens: float | None
    days: float | None
    dollars: float | None
    search: Mapping[str, Any]


@checked
def which_gpus(
    model: Transformer,
    tokens: Positive | None = None,
    *,
    days: Positive | None = None,
    dollars: Positive | None = None,
    gpus: Annotated[Sequence[Device | str] | Device | str, ANYTHING] = (),
    gpus_per_node: Count | None = None,
    usd_per_gpu_hour: NonNegative | None = None,
    batch: Count | None = None,
    dtype: Dtype = "",
    optimizer: str = "adam",
    software: Software | None = None,
) -> Offers:
    """The fewest of each GPU that hold a model in training; for a run of `tokens` that
    may take `days` the cheapest number, and for `dollars` alone the fastest.

    `gpus` are names of gpufacts or Devices; without them the usual ones of RENTS. Rents
    are those of RENTS, but for `usd_per_gpu_hour` of a single GPU. 1, 2, 4, ... GPUs of
    a node are tried, and 1, 2, 3, 4, 6, 8, 12, ... nodes, MOST_GPUS at most (256 cards
    without NVLink that aren't named), each with its best_layout of `batch` sequences
    (None: of about USUAL_TOKENS), if that fits and isn't tight. Raises
    ValueError for `days` and `dollars` without `tokens`, and LayoutError, with the
    reasons, where no GPU has an answer.
    """
    require_tokens(model, tokens, days, dollars)
    machines = _machines_of(gpus, gpus_per_node, usd_per_gpu_hour)
    software = software or usual_software(model, machines[0].device)
    search = {
        "dtype": dtype or software.dtype,
        "optimizer": optimizer,
        "software": software,
    }
    question = _Question(model, batch, tokens, days, dollars, search)
    offers = []
    left_out = {}
    for machine in machines:
        answer = _answer(question, machine)
        if isinstance(answer, Offer):
            offers.append(answer)
        else:
            left_out[machine.device.name] = answer
    if not offers:
        raise LayoutError(_no_answer(left_out))
    return Offers(tuple(sorted(offers, key=_order)), MappingProxyType(left_out))


def _no_answer(left_out: Mapping[str, str]) -> str:
    """Why no GPU has an answer, a line for each reason."""
    gpus_by_reason: dict[str, list[str]] = {}
    for gpu, reason in left_out.items():
        gpus_by_reason.setdefault(reason, []).append(gpu)
    if len(gpus_by_reason) == 1:
        (reason,) = gpus_by_reason
        if reason.startswith("Expected"):
            return reason
    lines = [f"{', '.join(gpus)}: {reason}" for reason, gpus in gpus_by_reason.items()]
    if len(left_out) == 1:
        return lines[0]
    return "\n".join(["No GPU has an answer.", *lines])


def _machines_of(
    gpus: Sequence[Device | str] | Device | str,
    gpus_per_node: int | None,
    usd_per_gpu_hour: float | None,
) -> list[_Machine]:
    """The machines that were named, or the usual ones."""
    if not isinstance(gpus, Device | str | Sequence):
        raise TypeError(
            "Expected gpus to be names of GPUs, or Devices, got"
            f" {brief_repr(gpus)}. Pass a list of them, or one."
        )
    names = [gpus] if isinstance(gpus, Device | str) else list(gpus)
    are_named = bool(names)
    if usd_per_gpu_hour is not None and len(names) != 1:
        raise ValueError(
            "Expected a single GPU (--gpu) beside a rent of one's own, got"
            f" {', '.join(map(str, names)) or 'none'}. Name the GPU that it is for."
        )
    if not names:
        names = [rent.gpu for rent in RENTS.values() if rent.usual]
    machines = []
    devices = {device.name: device for device in map(find, names)}
    for device in devices.values():
        rent = RENTS.get(device.name)
        per_node = USUAL_NODE if rent is None else rent.gpus_per_node
        usd = None if rent is None else rent.usd_per_gpu_hour
        has_nvlink = device.interconnect_bytes_per_s is not None
        machines.append(
            _Machine(
                device,
                gpus_per_node or per_node,
                usd if usd_per_gpu_hour is None else usd_per_gpu_hour,
                MOST_GPUS if are_named or has_nvlink else _MOST_CARDS,
            )
        )
    return machines


def _answer(question: _Question, machine: _Machine) -> Offer | str:
    """The best number of a machine's GPUs, or why there is none."""
    refusal = _refusal(question, machine)
    if refusal:
        return refusal
    offers: list[Offer] = []
    for count in _powers(question, machine):
        if 2 * count <= machine.most and _is_too_few(offers, count):
            continue
        offer = _offer(question, machine, count)
        if isinstance(offer, str):
            refusal = offer
            continue
        if offers and _is_not_worth(offers[-1], offer):
            break
        offers.append(offer)
        if _is_enough(offers):
            break
    if offers:
        between = _offer(question, machine, _between(question, machine, offers))
        best = _best(offers)
        if isinstance(between, Offer) and not _is_not_worth(best, between):
            offers.append(between)
        return _best(offers)
    if refusal.startswith("Expected"):  # else it says what a number lacks
        return refusal
    return (
        f"no number of up to {machine.most:,} holds it. Train adapters, a smaller model"
        " or shorter sequences, or in fewer bits."
    )


def _best(offers: Sequence[Offer]) -> Offer:
    """The best of one GPU's offers; of those for days as dear as that, by what the
    model can tell, the one with the fewest GPUs.
    """
    best = min(offers, key=_order)
    if best.bill is None or best.days is None or best.keeps == "no":
        return best
    most_hours = (1 + MEDIAN_LEFT_OUT) * best.bill.gpu_hours
    as_dear = (
        offer
        for offer in offers
        if offer.bill is not None
        and offer.bill.gpu_hours <= most_hours
        and offer.keeps == best.keeps
    )
    return min(as_dear, key=lambda offer: offer.gpus)


def _refusal(question: _Question, machine: _Machine) -> str:
    """Why a machine has no answer, whatever its number; empty where it may have."""
    device = machine.device
    compute_dtype = precision(question.search["dtype"]).compute_dtype
    if device.peaks.get(compute_dtype) is None:
        return f"its peak in {compute_dtype} is unknown. Choose another precision."
    if device.memory_bytes is None:
        return "its memory is unknown."
    if question.dollars is not None and machine.usd_per_gpu_hour is None:
        return (
            "its rent is unknown. Say what an hour of one costs (--rent,"
            " usd_per_gpu_hour), or ask for days."
        )
    return ""


def _powers(question: _Question, machine: _Machine) -> Iterator[int]:
    """Powers of two of GPUs inside a node, and of nodes, from those on that may hold
    the states of a model.
    """
    per_node = machine.gpus_per_node
    least = _least_gpus(question, machine)
    for power in itertools.count():
        if 2**power < per_node and 2**power >= least:
            yield 2**power
        if 2**power >= per_node:
            break
    for power in itertools.count():
        count = per_node * 2**power
        if count > machine.most:
            break
        if count >= least:
            yield count


def _between(question: _Question, machine: _Machine, offers: Sequence[Offer]) -> int:
    """The number of GPUs between two powers of two that may be better than the best:
    fewer, or more where the fastest is asked for. 0 where nodes don't allow one.
    """
    gpus = _best(offers).gpus
    if question.dollars is not None and question.days is None:
        between = 3 * gpus // 2
    else:
        between = 3 * gpus // 4
    is_whole = between % machine.gpus_per_node == 0
    return between if is_whole and between >= machine.gpus_per_node else 0


def _least_gpus(question: _Question, machine: _Machine) -> float:
    """GPUs without which no layout fits: about what its states alone take, split evenly
    among all.
    """
    layout = Layout(zero=3, recompute="full", **question.search)
    cluster = Cluster(machine.device, 1, machine.gpus_per_node)
    n_bytes = memory(rank_share(question.model, cluster, layout, 1))
    states = sum(n_bytes[purpose] for purpose in STATES)
    capacity = machine.device.memory_bytes or 1.0
    return 0.9 * states / capacity


def usual_batch(model: Transformer, gpus: int) -> int:
    """Sequences a step: about USUAL_TOKENS, or up to four times that for thousands of
    GPUs, in a multiple of the GPUs or of a part of them; of adapters ADAPTER_SEQUENCES
    a GPU at most. Of many sequences a GPU, the number has five binary digits and then
    zeros, so that micro-batches of several sequences divide it.

    Llama 3 405B had 16 million tokens a step on 8,192 and 16,384 GPUs (Llama team 2024,
    table 4).
    """
    if model.adapters and gpus * ADAPTER_SEQUENCES * model.seq < USUAL_TOKENS:
        return gpus * ADAPTER_SEQUENCES
    usual = min(max(gpus / 2048, 1), 4) * USUAL_TOKENS / model.seq
    unit = gpus
    while unit > usual / 8 and unit % 2 == 0:
        unit //= 2
    a_unit = max(round(usual / unit), 1)
    zeros = 1 << max(a_unit.bit_length() - 5, 0)
    return round(a_unit / zeros) * zeros * unit


def _offer(question: _Question, machine: _Machine, gpus: int) -> Offer | str:
    """The offer of so many GPUs, or why there is none; empty where it doesn't fit."""
    if not 0 < gpus <= machine.most:
        return ""
    model = question.model
    cluster = Cluster(machine.device, gpus, machine.gpus_per_node)
    batch = question.batch or usual_batch(model, gpus)
    try:
        best = best_layout(model, cluster, batch, runners_up=0, **question.search)
    except LayoutError as error:
        return str(error)
    if not best.step.fits:
        return ""
    return Offer(
        best.step,
        question.tokens,
        question.days,
        question.dollars,
        machine.usd_per_gpu_hour,
    )


def _is_too_few(offers: Sequence[Offer], gpus: int) -> bool:
    """Whether so many GPUs aren't likely to end in time, by how fast fewer are: of
    these the first may be slow because they are short of memory.
    """
    if not offers:
        return False
    last = offers[-1]
    if last.bill is None or last.days is None:
        return False
    faster = 3 if len(offers) == 1 else 1.2
    return last.bill.days_interval[1] * last.gpus / gpus > faster * last.days


def _is_not_worth(last: Offer, offer: Offer) -> bool:
    """Whether more GPUs end no sooner, or less than an hour, where that isn't asked."""
    if last.bill is None or offer.bill is None or offer.gpus < last.gpus:
        return False
    saved_days = last.bill.days - offer.bill.days
    least = 0.0 if last.days is not None else _WORTH_DAYS
    return saved_days <= least


def _is_enough(offers: Sequence[Offer]) -> bool:
    """Whether more GPUs are not to be tried: the fewest are all that is asked, or more
    than the fewest, which may be dearer for want of memory, end in time or cost twice
    what there is.
    """
    last = offers[-1]
    if last.bill is None or not last.bounds:
        return True
    if len(offers) == 1:
        return False
    if last.dollars is not None and last.bill.usd > 2 * last.dollars:
        return True
    return last.days is not None and last.bill.days_interval[1] <= last.days


def _order(offer: Offer) -> tuple[float, ...]:
    """What makes an offer better than another: smaller numbers, the first first."""
    run = offer.bill
    usd = offer.usd_per_gpu_hour
    if run is None:
        rent = float("inf") if usd is None else usd
        return (offer.gpus, rent)
    rent = float("inf") if usd is None else run.usd
    if not offer.bounds:
        return (rent, run.days)
    if offer.keeps == "no":
        return (2, offer.excess[1])
    doubt = 0 if offer.keeps == "likely" else 1
    if offer.days is None:
        return (doubt, run.days, rent)
    return (doubt, rent, offer.gpus)
