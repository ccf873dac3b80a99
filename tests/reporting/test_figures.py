import numpy as np
import polars as pl
import pytest

from canary.constraints import Chance, CVaR, to_dict
from canary.reporting.figures import save, training_figure
from reporting.test_summary import CONFIG


def config(constraint):
    training = {"seeds": [0, 1], "environments": 10, "rollout_length": 100}
    return CONFIG | {"constraint": to_dict(constraint), "training": training}


@pytest.fixture
def episodes() -> pl.DataFrame:
    """Two seeds, four updates; seed 1 violates the limit 5.5 in every second episode, and one
    episode does not count."""
    rows = [
        {
            "seed": seed,
            "iteration": iteration,
            "return": 0.5 + seed / 4,
            "cost": cost,
            "length": 10,
            "valid": True,
        }
        for seed in (0, 1)
        for iteration in range(4)
        for cost in (1.0, 1.0 + 8.0 * seed)
    ]
    return pl.DataFrame([*rows, rows[0] | {"cost": 99.0, "valid": False}])


def test_figure_shows_the_numbers_of_the_episodes(episodes):
    figure = training_figure(episodes, config(Chance(5.5, 0.02)))
    returns, violations, costs = figure.axes
    bold = {axes: max(axes.lines, key=lambda line: line.get_linewidth()) for axes in figure.axes}
    np.testing.assert_allclose(np.asarray(bold[returns].get_ydata(), float), 0.625)
    np.testing.assert_allclose(np.asarray(bold[violations].get_ydata(), float), 0.25)
    # The invalid 99 is left out
    np.testing.assert_allclose(np.asarray(bold[costs].get_ydata(), float), 3.0)
    np.testing.assert_allclose(
        np.asarray(bold[returns].get_xdata(), float), [1000, 2000, 3000, 4000]
    )


def test_figure_shows_another_constraint_by_what_it_limits(episodes):
    figure = training_figure(episodes, config(CVaR(5.5, 0.25)))
    middle = figure.axes[1]
    bold = max(middle.lines, key=lambda line: line.get_linewidth())
    block = episodes.filter(pl.col("valid") & (pl.col("iteration") == 0))["cost"].to_numpy()
    assert np.asarray(bold.get_ydata(), float)[0] == CVaR(5.5, 0.25).measure(block)
    assert middle.get_title(loc="left") == "CVaR 25%, all seeds, 95% band"


def test_a_figure_is_a_png_file(episodes, tmp_path):
    figure = training_figure(episodes, config(Chance(5.5, 0.02)))
    save(figure, tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
