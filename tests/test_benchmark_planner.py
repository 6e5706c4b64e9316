"""The planner's comparison with other planners: its arithmetic, without mlsysim."""

import pytest

from benchmarks import planner
from labkit.measure.published import table
from trainplan.cluster.validation import COMPARISONS, published_steps

TABLE = "selective recomputation"


def test_another_planners_error_is_predicted_over_published_speed():
    published = {f"{row['model']}, recompute {row['recompute']}": row for row in table("selective_recompute")}
    predicted = {f"{row['model']}, recompute {row['recompute']}": row for row in table("calculon_predictions")}
    runs = published_steps(TABLE).rows
    for run, (ours, theirs) in zip(runs, planner.calculon()[TABLE], strict=True):
        seconds = float(published[run.label]["iteration_s"])
        assert ours == run.error
        assert 1 + theirs == pytest.approx(seconds / float(predicted[run.label]["iteration_s"]), rel=1e-4)


def test_the_summary_has_median_and_90th_percentile_of_both_and_of_all_tables():
    one = [(-0.01 * size, 0.02 * size) for size in range(1, 11)]
    two = [(0.5, -0.7)]
    assert list(planner.summary({"one": one})) == [
        ("one", 10, pytest.approx((5.5, 9)), pytest.approx((11, 18))),
    ]
    assert list(planner.summary({"one": one, "two": two})) == [
        ("one", 10, pytest.approx((5.5, 9)), pytest.approx((11, 18))),
        ("two", 1, pytest.approx((50, 50)), pytest.approx((70, 70))),
        ("all tables", 11, pytest.approx((6, 10)), pytest.approx((12, 20))),
    ]


def test_without_mlsysim_the_other_figures_are_there_and_a_sentence_says_so(monkeypatch, capsys):
    monkeypatch.setattr(planner, "_has_mlsysim", lambda: False)
    names = [name for name, *_ in planner.rows()]
    assert len(names) == 2
    assert all("Calculon" in name for name in names)
    assert "mlsysim is not installed" in capsys.readouterr().err


def test_what_mlsysim_is_asked_about():
    asked = {name: sum(planner.expressible(run.by) for run in published_steps(name).rows) for name in COMPARISONS}
    assert asked[TABLE] == len(published_steps(TABLE).rows)
    mixtures = [run for run in published_steps("megatron bridge").rows if run.by.model.experts]
    contexts = [run for run in published_steps("torchtitan").rows if run.by.layout.context > 1]
    assert mixtures
    assert contexts
    assert not any(planner.expressible(run.by) for run in (*mixtures, *contexts))


def test_each_table_has_the_share_of_the_peak_with_the_least_median_error(monkeypatch):
    monkeypatch.setattr(
        planner, "mlsysim_seconds", lambda made, share: made.seconds * {0.3: 2, 0.5: 1, 0.7: 0.5}[share]
    )
    found = planner.mlsysim((0.3, 0.5, 0.7))
    assert "zero bubble memory" not in found
    assert sum(len(pairs) for pairs in found.values()) > 200
    assert all(theirs == pytest.approx(ours, abs=1e-12) for pairs in found.values() for ours, theirs in pairs)
