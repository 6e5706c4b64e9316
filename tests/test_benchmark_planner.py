"""The planner's comparison with other planners: its arithmetic, without mlsysim."""

import pytest

from benchmarks import planner
from trainplan.cluster import published_steps
from trainplan_published import table

pytestmark = pytest.mark.slow  # predicts all published runs

TABLE = "selective recomputation"


def test_another_planners_error_is_predicted_over_published_speed():
    by_label = {
        name: {
            f"{row['model']}, recompute {row['recompute']}": float(row["iteration_s"])
            for row in table(name)
        }
        for name in ("selective_recompute", "calculon_predictions")
    }
    runs = published_steps(TABLE).rows
    for run, (ours, theirs) in zip(runs, planner.calculon()[TABLE], strict=True):
        measured_s = by_label["selective_recompute"][run.label]
        predicted_s = by_label["calculon_predictions"][run.label]
        assert ours == run.error
        assert 1 + theirs == pytest.approx(measured_s / predicted_s, rel=1e-4)


def test_the_summary_has_median_and_90th_percentile_of_both_and_of_all_tables():
    many = [(-0.01 * size, 0.02 * size) for size in range(1, 11)]
    single = [(0.5, -0.7)]
    assert list(planner.summary({"many": many, "single": single})) == [
        ("many", 10, pytest.approx((5.5, 9)), pytest.approx((11, 18))),
        ("single", 1, pytest.approx((50, 50)), pytest.approx((70, 70))),
        ("all tables", 11, pytest.approx((6, 10)), pytest.approx((12, 20))),
    ]


def test_without_mlsysim_the_other_figures_are_there_and_a_sentence_says_so(
    monkeypatch, capsys
):
    monkeypatch.setattr(planner, "_has_mlsysim", lambda: False)
    names = [name for name, *_ in planner.rows()]
    assert len(names) == 2
    assert all("Calculon" in name for name in names)
    assert "mlsysim is not installed" in capsys.readouterr().err


def test_mlsysim_is_not_asked_about_experts_and_context_ranks():
    assert all(planner.expressible(run.by) for run in published_steps(TABLE).rows)
    mixtures = [
        run.by
        for run in published_steps("megatron bridge").rows
        if run.by.model.experts
    ]
    contexts = [
        run.by
        for run in published_steps("torchtitan").rows
        if run.by.layout.context > 1
    ]
    assert mixtures
    assert contexts
    assert not any(map(planner.expressible, (*mixtures, *contexts)))


def test_each_table_has_the_share_of_the_peak_with_the_least_median_error(monkeypatch):
    factors = {0.3: 2, 0.5: 1, 0.7: 0.5}
    monkeypatch.setattr(
        planner, "mlsysim_seconds", lambda step, share: step.seconds * factors[share]
    )
    tables = planner.mlsysim(tuple(factors))
    assert "zero bubble memory" not in tables
    assert sum(len(pairs) for pairs in tables.values()) > 200
    for pairs in tables.values():
        assert all(theirs == pytest.approx(ours, abs=1e-12) for ours, theirs in pairs)
