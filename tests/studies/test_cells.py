"""Cells of tables: intervals of final policies by hand, small numbers, and rows without any."""

import polars as pl
import pytest
from scipy.stats import beta

from canary.studies.cells import final_cells, final_numbers, margin_cell, probability, with_error
from canary.studies.rows import load_rows
from canary.studies.views import VIEWS, save_views
from reporting.stored import add_group, add_study


def row_of(results, **settings):
    add_group(results / "g", **settings)
    rows, problems = load_rows(results, {"rows": [{"variant": "a", "group": "g"}]})
    assert not problems or settings.get("final") is False  # what is missing is said
    return rows[0]


def test_final_policies_seen_on_episodes_have_exact_binomial_intervals(tmp_path):
    """0 and 8 violations in 500 episodes each; Clopper and Pearson by quantiles of the beta
    distribution."""
    numbers = final_numbers(row_of(tmp_path, violations=(0, 8)))
    assert numbers["final_violation"] == pytest.approx(8 / 1000)
    assert numbers["final_violation_lower"] == pytest.approx(beta.ppf(0.025, 8, 993))
    assert numbers["final_violation_upper"] == pytest.approx(beta.ppf(0.975, 9, 992))
    # Two seeds: each at 97.5%, so that both hold together.
    assert numbers["final_largest_lower"] == pytest.approx(beta.ppf(0.0125, 8, 493))
    assert numbers["final_largest_upper"] == pytest.approx(beta.ppf(0.9875, 9, 492))
    assert (numbers["final_safe"], numbers["final_sure"]) == (1.0, 0.5)
    assert beta.ppf(0.95, 1, 500) < 0.02 < beta.ppf(0.95, 9, 492)
    cells = final_cells(numbers)
    assert cells[0] == "0.0080 [0.0035, 0.0157]"
    assert cells[2:] == ("100% (50% sure)", "0.900")


def test_exact_final_policies_have_no_interval_and_none_have_no_numbers(tmp_path):
    exact = final_numbers(row_of(tmp_path / "exact"))
    assert exact["final_violation_upper"] is None
    assert final_cells(exact) == ("0.0150", "0.0200", "100%", "0.900")
    assert final_cells(final_numbers(row_of(tmp_path / "none", final=False))) == ("-",) * 4


def test_small_probabilities_are_not_shown_as_zero():
    assert probability(None) == "-"
    assert [probability(value) for value in (0, 0.0123, 4.64e-5)] == ["0", "0.0123", "4.6e-5"]
    assert with_error(4.64e-5, 0.00012) == "4.6e-5 ± 1.2e-4"
    assert with_error(0.0123, 0.0004) == "0.0123 ± 0.0004"
    assert with_error(0.0123, None) == "0.0123 ± -"


def test_a_margin_without_jitter_says_why_there_is_none():
    assert margin_cell({"jitter": 0.0, "margin_per_jitter": None}) == "- (jitter 0)"
    assert margin_cell({"jitter": None, "margin_per_jitter": None}) == "-"
    assert margin_cell({"jitter": 0.1, "margin_per_jitter": -1.26}) == "-1.3"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("others", [True, False])
def test_a_row_without_an_episode_in_its_second_half_is_shown_beside_the_others(
    tmp_path, view, others
):
    results = tmp_path / "x"
    add_group(results / "short", updates=10)
    names = {"short-1": "short"}
    if others:
        add_group(results / "whole")
        names |= {"whole-1": "whole"}
    add_study(results, names, view=view)
    paths = save_views(results)
    lines = paths["table"].read_text().splitlines()
    if view != "training-curves":  # which shows all of training
        assert any(line.startswith("| ") and " - " in line for line in lines)
    assert sum("whole-1" in line for line in lines) == (
        others and view not in ("table1", "training-curves")
    )
    assert len(pl.read_csv(paths["data"])) >= others


def test_nobody_knows_the_moments_of_a_study_without_any(tmp_path):
    """Metrics of a method that keeps none: a sentence, and an empty table."""
    results = tmp_path / "x"
    add_group(results / "g")
    metrics = pl.read_parquet(results / "g" / "metrics.parquet").drop("cost_mean")
    metrics.write_parquet(results / "g" / "metrics.parquet")
    add_study(results, {"a": "g"}, view="anatomy")
    assert "has no cost moments" in save_views(results)["table"].read_text()


def test_a_table_shows_the_probability_of_improvement_with_its_interval(tmp_path):
    """All seeds of both have the same returns, so every pair is a tie."""
    results = tmp_path / "x"
    add_group(results / "g")
    add_group(results / "h", algorithm="cpo", seeds=(3, 4))
    add_study(results, {"a": "g", "b": "h"})
    paths = save_views(results)
    head, _, first, second = (
        [cell.strip() for cell in line.split("|")]
        for line in paths["table"].read_text().splitlines()
        if line.startswith("|")
    )
    place = head.index("P(J above the first's) [95%]")
    assert (first[place], second[place]) == ("-", "0.50 [0.50, 0.50]")
    assert pl.read_csv(paths["data"])["improvement_upper"].to_list() == [None, 0.5]
