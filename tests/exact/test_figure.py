"""Tables, figure and files of the frontier, from a report written by hand."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest

from canary.exact import figure as frontier

BEST = {"var": (0.91, 0.95, 0.98), "cvar": (0.85, 0.93, 0.97), "cantelli": (None, 0.8, 0.96)}
EPSILONS = (0.01, 0.05, 0.2)
SHAPED = {0.0: None, 0.4: 0.85, 0.8: 0.94}


def point(constraint: str, epsilon: float, value: float | None) -> dict:
    names = ("violation_probability", "cost_mean", "cost_deviation", "cantelli_value", "cvar")
    numbers = dict.fromkeys(names, None if value is None else 0.004)
    known = {"constraint": constraint, "epsilon": epsilon, "return": value, "upper_bound": value}
    return known | numbers


def seed(number: int, value: float, chance: float) -> dict:
    return {
        "seed": number, "return": value, "violation_probability": chance, "is_safe": chance <= 0.05,
        "cost_mean": 1.0, "cost_deviation": 0.5, "cantelli_value": -2.5, "cvar": 3.0, "length": 9.0,
        **{f"gap_to_{name}": best[1] - value for name, best in BEST.items()},
        "gap_at_own_violation": 0.0123, "dead_zone": None, "shaped_bound": None,
    }  # fmt: skip


@pytest.fixture
def report() -> dict:
    points = [
        point(name, e, value)
        for name, row in BEST.items()
        for e, value in zip(EPSILONS, row, strict=True)
    ]
    run = {
        "run_dir": "runs/one",
        "algorithm": "canary",
        "preset": "fast",
        "epsilon": 0.05,
        "updates": 9,
        "notes": [],
    }
    seeds = [[seed(0, 0.9, 0.03), seed(1, 0.94, 0.07), seed(2, -3.0, 0.02)], [seed(5, 0.7, 1e-7)]]
    return {
        "env": "IcyLake",
        "settings": {},
        "limit": 5.5,
        "epsilon": 0.05,
        "unconstrained_return": 0.99,
        **{f"{name}_optimal_return": row[1] for name, row in BEST.items()},
        "shaped_optimal_return": {str(zone): value for zone, value in SHAPED.items()},
        "optima": {name: point(name, 0.05, row[1]) for name, row in BEST.items()},
        "frontier": points,
        "shaped": [
            point("shaped", 0.05, value) | {"dead_zone": zone} for zone, value in SHAPED.items()
        ],
        "runs": [run | {"seeds": seeds[0]}, run | {"algorithm": "cpo", "seeds": seeds[1]}],
    }


def test_the_figure_shows_curves_points_and_the_line_at_epsilon(report: dict):
    figure = frontier.frontier_figure(report)
    axes, _ = figure.axes
    assert axes.get_xscale() == "log"
    curves = {
        line.get_label().partition(":")[0]: line.get_xydata()
        for line in axes.lines
        if ":" in str(line.get_label())
    }
    np.testing.assert_allclose(curves["VaR"], list(zip(EPSILONS, BEST["var"], strict=True)))
    # Where no policy is, there is no point
    np.testing.assert_allclose(curves["Cantelli"], [(0.05, 0.8), (0.2, 0.96)])
    seeds = np.concatenate([np.asarray(points.get_offsets()) for points in axes.collections])
    (left, right), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    # The last two lie outside: at the edge.
    for expected in ((0.03, 0.9), (0.07, 0.94), (left, 0.7), (0.02, bottom)):
        assert np.isclose(seeds, expected).all(axis=1).any(), expected
    assert left <= 0.01
    assert right >= 0.2
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[-2:] == ["canary, trained: 3 seeds", "cpo, trained: 1 seed"]
    plt.close(figure)


def test_files(report: dict, tmp_path: Path):
    paths = frontier.save_frontier(report, tmp_path / "new" / "place")
    assert set(paths) == {"figure", "frontier", "dead zones", "report", "policies"}
    assert paths["figure"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert json.loads(paths["report"].read_text()) == report
    table = pl.read_csv(paths["frontier"])
    assert table.filter(constraint="cvar")["return"].to_list() == [0.85, 0.93, 0.97]
    assert table.filter(constraint="cantelli")["return"].to_list() == [None, 0.8, 0.96]
    shaped = pl.read_csv(paths["dead zones"])
    assert shaped["dead_zone"].to_list() == list(SHAPED)
    assert shaped["return"].to_list() == list(SHAPED.values())
    policies = pl.read_csv(paths["policies"])
    assert policies["return"].to_list() == [0.9, 0.94, -3.0, 0.7]
    assert plt.get_fignums() == []
