"""The views of the paper's tables and figures, from stored results with known numbers."""

from dataclasses import asdict, replace

import numpy as np
import polars as pl
import pytest
from PIL import Image

from canary.numerics.gaussian_tail import gaussian_tail
from canary.reporting import figures
from canary.studies import table
from canary.studies.paper import PUBLISHED
from canary.studies.rows import load_rows
from canary.studies.sweep import collapse_times
from canary.studies.table1 import half_digit, outside
from canary.studies.views import save_views
from reporting.stored import add_group, add_study


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("views")
    add_group(root / "units" / "a")
    add_group(root / "units" / "b", algorithm="cpo")
    for view in ("table1", "training-curves", "anatomy", "gaussian-tail"):
        paper = asdict(PUBLISHED["IcyLake"]["canary"])
        add_study(root / view, {"one": "../units/a", "two": "../units/b"}, view=view, paper=paper)
    for epsilon in (0.02, 0.1):
        add_group(
            root / "sweep" / f"u{epsilon}",
            overrides=("constraint.limit=3", f"constraint.epsilon={epsilon}"),
        )
    add_study(
        root / "sweep", {"unshaped-0.02": "u0.02", "unshaped-0.1": "u0.1"}, view="epsilon-sweep"
    )
    return root


def test_table1_shows_the_published_row_below_ours(results):
    paths = save_views(results / "table1")
    lines = paths["table"].read_text().splitlines()
    ours = next(line for line in lines if line.startswith("| IcyLake | canary"))
    published = lines[lines.index(ours) + 1]
    assert "0.016 ± 0.007 | 7.1 ± 2.7 | 87% | 0.67 ± 0.06 | 0.6" in published
    data = pl.read_csv(paths["data"])
    assert data["violation_outside"][0] is not None
    assert "final_violation" in data.columns
    assert f"[{data['iqm_reward_lower'][0]:.3f}, {data['iqm_reward_upper'][0]:.3f}]" in ours


def test_a_number_is_marked_outside_the_published_interval_only():
    """IcyLake, Canary: P 0.016 ± 0.007, so [0.0018, 0.0302] with half a digit; 26 of 30 safe:
    [0.69, 0.96] exactly."""
    paper = asdict(PUBLISHED["IcyLake"]["canary"])
    row = {"violation": 0.0302, "jitter": 0.0071, "reward": 0.9, "safe": 0.97}
    marks = outside(row, paper)
    assert marks == {
        "violation_outside": False,
        "jitter_outside": False,
        "reward_outside": True,
        "safe_outside": True,
    }
    assert outside(row | {"violation": 0.0303, "safe": 0.7}, paper)["violation_outside"]
    assert not outside(row | {"safe": 0.7}, paper)["safe_outside"]
    assert outside(row, None)["violation_outside"] is None
    # Half of the last digit that is printed: 81 ± 3, 4.0 ± 0.6, 0.67 ± 0.06.
    for environment, edge in (("EcoAnt", 81 + 5.88 + 0.5), ("PointGoal2500", 4 + 1.176 + 0.05)):
        printed = asdict(PUBLISHED[environment]["canary"])
        assert not outside(row | {"reward": edge - 1e-6}, printed)["reward_outside"]
        assert outside(row | {"reward": edge + 1e-6}, printed)["reward_outside"]
    assert half_digit(paper["reward"]) == pytest.approx(0.005)
    assert outside(row | {"jitter": None}, paper)["jitter_outside"] is None


def test_training_curves_are_a_figure_and_its_data(results):
    paths = save_views(results / "training-curves")
    data = pl.read_csv(paths["data"])
    assert data["variant"].unique().sort().to_list() == ["one", "two"]
    assert data.filter(pl.col("variant") == "one")["violation"][0] > 0.5
    with Image.open(paths["figure"]) as figure:
        assert figure.size[0] > 800


def test_the_figure_of_a_study_has_a_panel_per_environment(results, tmp_path, monkeypatch):
    described = {"rows": [{"variant": name, "group": f"../units/{name}"} for name in "ab"]}
    (one, two), _ = load_rows(results / "table1", described)
    elsewhere = replace(two, summary=two.summary | {"env": "Pond"})
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    for rows in ([one, two], [one, elsewhere, two]):
        table._figure(rows, {"title": "Both"}, tmp_path / "study.png")
    (alone,), several = (figure.axes for figure in drawn)
    assert alone.get_title("left") == "Both"
    legends = [[text.get_text() for text in axes.get_legend().texts] for axes in several]
    assert legends == [["a", "b"], ["b"]]
    assert [axes.get_title("left") for axes in several] == ["IcyLake", "Pond"]


def test_anatomy_is_the_bound_on_the_cost_at_the_moments_of_the_update(results):
    paths = save_views(results / "anatomy")
    data = pl.read_csv(paths["data"]).filter(pl.col("variant") == "one")
    update = np.arange(20, 40)
    mean = 1 + 6 * np.exp(-update / 8)
    # The variance equals the mean in the made-up metrics
    expected = np.mean(49 * mean / 5.5**2 - (1 - mean / 5.5) ** 2)
    assert data["bound"].to_numpy() == pytest.approx(expected, rel=1e-4)
    assert "0 of 2" in paths["table"].read_text()


def test_the_gaussian_tail_of_stored_seeds(results):
    paths = save_views(results / "gaussian-tail")
    rows, _ = load_rows(
        results / "gaussian-tail", {"rows": [{"variant": "one", "group": "../units/a"}]}
    )
    summary = rows[0].summary
    tail = gaussian_tail(
        summary["cost_per_seed"][0],
        summary["cost_deviation_per_seed"][0],
        5.5,
        summary["violation_per_seed"][0],
    )
    assert pl.read_csv(paths["data"])["z"][0] == pytest.approx(tail.deviations)


def test_the_sweep_has_calibration_and_collapse(results):
    paths = save_views(results / "sweep")
    data = pl.read_csv(paths["data"])
    assert data["epsilon"].to_list() == [0.02, 0.1]
    assert data["below_threshold"][1] == pytest.approx(0.1 / data["violation"][1])
    rows, _ = load_rows(results / "sweep", {"rows": [{"variant": "x", "group": "u0.02"}]})
    times = collapse_times(rows[0])
    assert len(times) == 2
    assert all(1000 <= time <= 20_000 and time % 1000 == 0 for time in times)
    with Image.open(paths["figure"]) as figure:
        assert figure.size[0] > 800


def test_the_published_margins_are_those_of_the_paper():
    """The paper: (epsilon - P) / jitter is largest for Canary in every environment."""
    for rows in PUBLISHED.values():
        margin = {name: (0.02 - row.violation) / row.jitter for name, row in rows.items()}
        assert max(margin, key=margin.__getitem__) == "canary"
