"""Devices judged for a job: which fit, in which order, and why."""

import dataclasses

import pytest

from exercises.nb01.device_jobs import Job, judge, shortlist
from labkit.measure import catalog

JOB = Job(memory_bytes=20e9, flop=1e13, n_bytes=1e9, dtype="bfloat16")


def test_the_step_is_the_slower_of_arithmetic_and_memory():
    h100 = catalog.find("H100 SXM5 80GB")
    assert judge(h100, JOB).step_s == pytest.approx(1e13 / 989.4e12)
    moving = judge(h100, dataclasses.replace(JOB, n_bytes=1e12))
    assert moving.step_s == pytest.approx(1e12 / 3.35e12)
    assert "limited by memory bandwidth 3.35 TB/s" in str(moving)
    assert moving.energy_j == pytest.approx(700 * moving.step_s)
    assert moving.memory_share == 0.25


def test_reasons_in_and_out_have_numbers():
    l4 = catalog.find("L4")
    rtx = catalog.find("RTX 4070")
    assert judge(l4, JOB).fits is True
    assert "needs 20.0 GB of 24.0 GB memory (83%)" in judge(l4, JOB).why
    out = judge(rtx, JOB)
    assert out.fits is False
    assert out.why[0] == "needs 20.0 GB of 12.0 GB memory (167%)"


def test_an_unknown_peak_is_neither_in_nor_out():
    t4 = judge(catalog.find("T4"), dataclasses.replace(JOB, memory_bytes=1e9))
    assert (t4.fits, t4.step_s, t4.energy_j) == (None, None, None)
    assert "bfloat16 peak unknown, so no step time" in str(t4)


def test_the_shortlist_is_ordered_and_complete():
    candidates = shortlist(JOB)
    assert len(candidates) == len(catalog.devices())
    verdicts = [one.fits for one in candidates]
    assert verdicts == sorted(verdicts, key=[True, None, False].index)
    fitting = [one for one in candidates if one.fits]
    assert [one.step_s for one in fitting] == sorted(one.step_s for one in fitting)
    assert fitting[0].device.name == "GB200 (per Blackwell GPU)"
