"""Which collectives a compiled program has, and what they send."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
_OPERATION = re.compile(rf"= (\S.*?) ({KINDS})\(")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def exchanged(program: str, devices: int = 8) -> dict[str, int]:
    """Bytes of the whole tensors by kind of collective, in the text of a program that
    XLA compiled for `devices` devices.
    """
    n_bytes_of: dict[str, int] = {}
    for shapes, kind in _OPERATION.findall(program):
        for dtype, sizes in _ARRAY.findall(shapes):
            bits = re.match(r"[a-z]+(\d*)", dtype)
            # f32, bf16; a pred has no number and takes a byte
            item_bytes = int((bits and bits[1]) or 8) // 8
            n_bytes = item_bytes * math.prod(map(int, filter(None, sizes.split(","))))
            if kind == "reduce-scatter":  # its result is one device's part
                n_bytes *= devices
            n_bytes_of[kind] = n_bytes_of.get(kind, 0) + n_bytes
    return n_bytes_of


def sent(n_bytes_of: Mapping[str, int], devices: int = 8) -> float:
    """Bytes that each device sends in rings: 2 (n - 1) / n a byte for an all-reduce,
    half of that for gathering or scattering.
    """
    share = (devices - 1) / devices
    return share * sum(
        n_bytes * (2 if kind == "all-reduce" else 1)
        for kind, n_bytes in n_bytes_of.items()
    )


def shardings(lowered: str) -> list[str]:
    """What the partitioner Shardy is told, in the text of a program before it is
    compiled: the mesh, and each argument's sharding.
    """
    return re.findall(
        r"sdy\.mesh @\w+ = <.*?>|%arg\d+: .*?#sdy\.sharding<.*?>", lowered
    )
