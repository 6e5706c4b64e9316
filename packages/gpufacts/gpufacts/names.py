"""Find a device by the name that people, clouds and drivers give it."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from dataclasses import replace
from numbers import Real

from gpufacts.device import Device
from gpufacts.table import devices, read

_BRAND = re.compile(
    r"nvidia|tesla|geforce|amd|instinct|oam|intel|habana|aws|amazon|google|gpu|chip"
    r"|[dh]gx|nvlink|superchip|\d+x"
)
"""Words that say nothing: no two rows differ only in them."""

_COUNT = re.compile(
    r"^\s*\d+ ?[x×] ?(?=[a-z]|\d{4})|(?<=\d)[x×]\d{1,4}\s*$|(\s[x×]|:) ?\d{1,4}\s*$"
)
"""How many cards, before or behind a name: "8xH100", "2x4090", "H100 x 8"."""

_FORM = re.compile(r"(sxm|pcie|nvl)\d*")
"""How a card is connected."""

_BUILD = re.compile(
    r"sxm\d*|pcie|nvl|\d+gb|hbm\w*|fe|[rg]tx|tpu|blackwell|trillium|ironwood|edition"
)
"""Words of a row that a short name may leave out: form, memory, series."""

MEMORY_TOLERANCE = 0.12
"""How far a driver's count of memory may lie from the row's, as a share of it: 80 GB
are reported as 85.0e9 bytes (79.2 GiB) by one and 79.1e9 by another."""


class UnknownDevice(ValueError):
    """A name that no row has, or that fits rows of different chips."""


def find(name: str | Device, memory_bytes: float | None = None) -> Device:
    """The device of a name: the table's own, a driver's or a short one ("H100"); a
    Device is returned as it is.

    Case, spaces, hyphens, brands and a count of cards ("2x Tesla T4") don't matter. A
    short name that fits several builds of one chip gives the usual one, the SXM module
    and then the one with the most memory; an instance of a cloud ("p5.48xlarge") gives
    what it has. Then `assumed` says so. `memory_bytes`, as the driver counts it, tells
    builds apart. Raises UnknownDevice, a ValueError, with what is missing and the
    nearest names; TypeError where the name isn't text.
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str):
        raise TypeError(
            f"Expected the name of a device or a Device, got {type(name).__name__}."
        )
    if not isinstance(memory_bytes, Real | None):
        raise TypeError(
            "Expected memory_bytes to be a number or None, got"
            f" {type(memory_bytes).__name__}."
        )
    exact = _by_key().get(_key(name))
    if exact is not None and _has_memory(exact, memory_bytes):
        return exact
    rented = _of_instance(name)
    if rented is not None:
        assumed = f"{name!r:.60} has {rented.name}."
        return replace(rented, assumed=assumed, instance=name)
    builds = [row for row in _builds(name) if _has_memory(row, memory_bytes)]
    if not builds:
        raise UnknownDevice(_refusal(name, memory_bytes))
    usual = min(builds, key=_rank)
    return replace(usual, assumed=_assumption(name, usual, builds))


def matching(name: str) -> list[Device]:
    """The devices that a name may mean, the usual one first; none if it's unknown."""
    exact = _by_key().get(_key(name)) or _of_instance(name)
    return [exact] if exact else sorted(_builds(name), key=_rank)


def _of_instance(name: str) -> Device | None:
    """The device of a cloud's instance, such as p5.48xlarge; None for other names."""
    plain = _COUNT.sub("", name.casefold()).strip()
    plain = plain.removeprefix("ml.").removeprefix("standard_")
    for words, device in _instances():
        if words.fullmatch(plain):
            return _by_key()[_key(device)]
    return None


@functools.cache
def _instances() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The names of clouds' instances, and of the devices that they have."""
    return tuple(
        (re.compile(row["words"]), row["device"]) for row in read("instances.csv")
    )


def _words(name: str) -> list[str]:
    """The words of a name in lower case, without brands. Of what stands in brackets
    only those of a build: "A100 (40 GB SXM4)", "TPU v4 (chip)".
    """
    plain, *in_brackets = re.split(r"[()]", _COUNT.sub("", name.casefold()))
    words = _split(plain)
    for index, part in enumerate(in_brackets):
        inside = index % 2 == 0
        words += [w for w in _split(part) if not inside or _BUILD.fullmatch(w)]
    return words


def _split(text: str) -> list[str]:
    # "rtx4090" is two words; "h100" is one
    series = r"\b(rtx|gtx|geforce|tesla|gaudi|trainium)(?=[a-z]?\d)"
    spaced = re.sub(series, r"\1 ", text)
    # "2080ti" is two words too
    spaced = re.sub(r"(?<=\d{4})(?=(ti|super)\b)", " ", spaced)
    # "80 gb" and "80g" are "80gb"
    spaced = re.sub(r"\b(\d+) ?gb?\b", r"\1gb", spaced)
    return [w for w in re.findall(r"[a-z0-9]+", spaced) if not _BRAND.fullmatch(w)]


def _key(name: str) -> str:
    """The same text for all spellings of a name, such as 'NVIDIA A100-SXM4-80GB'."""
    words = re.findall(r"[a-z0-9]+", _COUNT.sub("", name.casefold()))
    return "".join(word for word in words if not _BRAND.fullmatch(word))


@functools.cache
def _by_key() -> dict[str, Device]:
    """Each device by the keys of its own name and of those that drivers report."""
    by_key: dict[str, Device] = {}
    for device in devices():
        for name in (device.name, *device.reported_as.split(";")):
            if name:
                by_key[_key(name)] = device
    return by_key


def _builds(name: str) -> list[Device]:
    """The rows that have each word of a name, and beyond them only words of a build."""
    asked = set(_words(name))
    if not any(re.search(r"\d", word) for word in asked):
        return []  # "quadro", "rtx": a series, no device
    return [row for row in devices() if _is_build(row, asked)]


def _is_build(row: Device, asked: Iterable[str]) -> bool:
    row_words = set(_words(row.name))
    unnamed = set(row_words)
    for word in asked:
        named = {each for each in row_words if _is_word(word, each)}
        if not named and not _is_fact(word, row, row_words):
            return False
        unnamed -= named
    chip = {word for word in row_words if not _BUILD.fullmatch(word)}
    return not unnamed & chip and bool(row_words - unnamed)


def _is_word(asked: str, row_word: str) -> bool:
    """Whether a word means a row's: "sxm" and "sxm5" mean each other; "h20" doesn't
    mean "h200".
    """
    if asked == row_word:
        return True
    if _FORM.fullmatch(asked) and row_word.isalpha():
        return asked.rstrip("0123456789") == row_word
    return asked.isalpha() and row_word.rstrip("0123456789") == asked


def _is_fact(asked: str, row: Device, row_words: Iterable[str]) -> bool:
    """Whether a word is a fact of a row whose name doesn't have it: "H200 141GB", "L4
    PCIe". A row that names its memory or form has no other.
    """
    if memory := re.fullmatch(r"(\d+)gb", asked):
        is_named = any(re.fullmatch(r"\d+gb", word) for word in row_words)
        return not is_named and _has_memory(row, float(memory[1]) * 1e9)
    if asked == "pcie":
        return bool(row.pcie) and not any(map(_FORM.fullmatch, row_words))
    return asked == (row.memory_type or "").casefold()


def _has_memory(device: Device, memory_bytes: float | None) -> bool:
    if memory_bytes is None or device.memory_bytes is None:
        return True
    difference = abs(device.memory_bytes - memory_bytes)
    return difference <= MEMORY_TOLERANCE * device.memory_bytes


def _rank(device: Device) -> tuple[bool, float]:
    """The usual build of a chip has the lowest rank."""
    return "SXM" not in device.name, -(device.memory_bytes or 0)


def _assumption(name: str, usual: Device, builds: list[Device]) -> str:
    others = [row.name for row in builds if row.name != usual.name]
    sentence = f"{name!r:.60} is taken as {usual.name}"
    if others:
        sentence += f"; there are also {', '.join(dict.fromkeys(others))}"
    return f"{sentence}."


def _refusal(name: str, memory_bytes: float | None) -> str:
    """What is missing for a name, and the nearest names that the table has."""
    name = name[:200]  # a text passed by mistake would take seconds to compare
    names = [device.name for device in devices()]
    names.sort(key=lambda row_name: _likeness(name, row_name), reverse=True)
    kind = next(
        row
        for row in read("gpu_kinds.csv")
        if re.search(row["words"], name, re.IGNORECASE)
    )
    missing = kind["missing"]
    asked = set(_words(name))
    longer = [row_name for row_name in names if asked <= set(_words(row_name))]
    # One alone may be another chip: "RTX 2080" is no RTX 2080 Ti. And a driver, which
    # tells the memory, gives a whole name.
    if asked and len(longer) > 1 and memory_bytes is None and not kind["words"]:
        missing = "It fits several chips: give the whole name"
    memory = ""
    if memory_bytes is not None:
        memory = f" with {memory_bytes / 1e9:.3g} GB"
    return (
        f"Expected the name of a device in the table, got {name!r:.80}{memory}; its "
        f"peaks are unknown. {missing}. Nearest names: {', '.join(names[:4])}. "
        f"gpufacts.devices() lists all {len(names)}."
    )


def _likeness(name: str, row_name: str) -> tuple[int, float]:
    """How near a row's name is: the words that both have, then the letters."""
    shared_words = set(_words(name)) & set(_words(row_name))
    letters = difflib.SequenceMatcher(None, _key(name), _key(row_name)).ratio()
    return len(shared_words), letters
