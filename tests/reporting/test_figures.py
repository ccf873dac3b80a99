import numpy as np
import polars as pl
import pytest

from canary.constraints import Chance, CVaR, to_dict
from canary.reporting.figures import comparison_figure, save, training_figure
from canary.reporting.results import Results, thin
from reporting.test_summary import CONFIG

# Seed 1 violates the limit 5.5 in every second episode, and one episode does not count.
ROWS = [
    (seed, iteration, 0.5 + seed / 4, cost, 10, True)
    for seed in (0, 1)
    for iteration in range(4)
    for cost in (1.0, 1.0 + 8.0 * seed)
]
SCHEMA = ["seed", "iteration", "return", "cost", "length", "valid"]
EPISODES = pl.DataFrame([*ROWS, (0, 0, 0.5, 99.0, 10, False)], schema=SCHEMA, orient="row")
METRICS = pl.DataFrame(
    [(seed, update, 1000 * (update + 1)) for seed in (0, 1) for update in range(4)],
    schema=["seed", "iteration", "steps"],
    orient="row",
)


def results(constraint) -> Results:
    config = CONFIG | {"constraint": to_dict(constraint)}
    blocks = thin(EPISODES, METRICS, constraint, 4)
    return Results({"environment": "IcyLake"}, config, 4000, {0: {}, 1: {}}, blocks)


def bold(axes, which):
    line = max(axes.lines, key=lambda line: line.get_linewidth())
    return np.asarray(line.get_xdata() if which == "x" else line.get_ydata(), float)


def test_figures_show_the_numbers_of_the_episodes():
    one = results(Chance(5.5, 0.02))
    returns, violations, costs = training_figure([one]).axes
    np.testing.assert_allclose(bold(returns, "y"), 0.625)
    np.testing.assert_allclose(bold(violations, "y"), 0.25)
    np.testing.assert_allclose(bold(costs, "y"), 3.0)  # the invalid 99 is left out
    np.testing.assert_allclose(bold(returns, "x"), [1000, 2000, 3000, 4000])
    left, right, *_ = comparison_figure([("a", one), ("b", one)]).axes
    assert [line.get_label() for line in left.lines] == ["a", "b"]
    np.testing.assert_allclose(np.asarray(right.lines[0].get_ydata(), float), 0.25)


def test_another_constraint_is_shown_by_what_it_limits():
    """In each block the costs are (1, 1) and (1, 9), whose worst quarters are 1 and 9."""
    middle = training_figure([results(CVaR(5.5, 0.25))]).axes[1]
    assert bold(middle, "y")[0] == pytest.approx((1 + CVaR(5.5, 0.25).measure([1.0, 9.0])) / 2)
    assert middle.get_title(loc="left") == "CVaR 25%, all seeds"


def test_a_figure_is_a_png_file(tmp_path):
    save(training_figure([results(Chance(5.5, 0.02))]), tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
