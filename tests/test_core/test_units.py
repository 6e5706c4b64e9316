"""Numbers as readers see them."""

import math

import pytest

from labkit.core.units import format_bytes, format_quantity, format_seconds, significant


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2, "threads", "2 threads"),
        (16_384, "devices", "16,384 devices"),  # counted, so every digit is known
        (16_384.0, "images/s", "16,400 images/s"),  # measured
        (2_048_000, "tokens", "2,050,000 tokens"),
        (2.5, "tokens", "2.50 tokens"),
        (12, "%", "12.0 %"),
        (2.1e12, "FLOP/s", "2.10 TFLOP/s"),
        (0.0021, "s", "2.10 ms"),
        (3 * 2**30, "B", "3.00 GiB"),
        (math.inf, "tokens", "inf tokens"),
    ],
)
def test_a_quantity(value, unit, text):
    assert format_quantity(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2.5e-10, "0.250 ns"),
        (150, "2.50 min"),
        (3 * 3600, "3.00 h"),
        (3 * 86_400, "3.00 days"),
        (3 * 365.25 * 86_400, "3.00 years"),
    ],
)
def test_a_duration(seconds, text):
    assert format_seconds(seconds) == text


def test_three_digits_are_shown_and_no_exponent():
    assert [significant(v) for v in (1_234_567, 0.99951, 0, -0.012345)] == [
        "1,230,000",
        "1.000",
        "0",
        "-0.0123",
    ]
    assert format_bytes(1023) == "1,023 B"
