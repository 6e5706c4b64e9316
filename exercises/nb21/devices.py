"""What the checks of notebook 21 need of JAX: eight devices on the CPU, and what a compiled program exchanges."""

from __future__ import annotations

from functools import cache
from typing import Any

from exercises.tagged_cells import tagged_cells
from labkit.lesson.checks import NotYet, Todo

DEVICES = 8


def needs_jax() -> tuple[Any, Any]:
    """The modules jax and jax.numpy, with eight devices. Raises Todo without JAX, NotYet where it began with fewer."""
    try:
        import jax
    except ImportError as error:
        raise Todo("This exercise needs JAX: run `make appendix`, then restart the kernel.") from error
    try:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", DEVICES)
    except RuntimeError:  # JAX has begun; the notebook asked for eight devices itself
        pass
    if jax.device_count() < DEVICES:
        raise NotYet(
            f"Expected {DEVICES} devices, but JAX began with {jax.device_count()}: restart the kernel, and run the "
            "notebook from its top."
        )
    return jax, jax.numpy


def exchanged(program: str) -> dict[str, float]:
    """Bytes of the whole tensors by kind of collective, as the notebook's own function counts them."""
    return dict(_counter()(program))


@cache
def _counter() -> Any:
    """The function `exchanged` of the notebook's cell tagged `design`."""
    return tagged_cells("21", "design")["exchanged"]
