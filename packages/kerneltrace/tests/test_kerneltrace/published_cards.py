"""GPUs that somebody timed kernels on, and that the catalog lacks."""

from dataclasses import replace

from gpufacts import find


def _card(like, name, sms, mhz, gb_per_s, l2_kib):
    """A card that the catalog lacks, with the facts that its nvbench reports print,
    and the rest of another.
    """
    facts = {
        "sms": sms,
        "boost_hz": 1e6 * mhz,
        "bandwidth_bytes_per_s": 1e9 * gb_per_s,
        "l2_bytes": 1024 * l2_kib,
    }
    return replace(find(like), name=name, **facts)


_L40 = replace(find("L40S"), name="L40")
"""As large, with the same memory and L2 cache (the data sheets of both)."""
CARDS = {
    card.name: card
    for card in (
        _L40,
        _card("GeForce RTX 2080 Ti (FE)", "GeForce RTX 2060", 30, 1680, 336, 3072),
        _card("GeForce RTX 3060 12GB", "GeForce RTX 3060 Ti", 38, 1695, 448, 3072),
        _card("GeForce RTX 3060 12GB", "GeForce RTX 3070 Ti", 48, 1800, 608, 4096),
    )
}
"""Performance-Tests-NvBench/reduction/BenchResults/BenchResults*.md beside the table's
sources.
"""
