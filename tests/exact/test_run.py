"""The report of `canary frontier`: optima, trained policies, figure, files, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from canary.config.run_config import config_from_dict
from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.evaluation import make_player
from canary.exact import CONSTRAINTS, best_under_cantelli, from_environment
from canary.exact.figure import frontier_figure, save_frontier
from canary.exact.run import DEAD_ZONES, frontier_report, grid_inputs, policy_law
from canary.rollout import CostAccount, advance, start_lane
from canary.runs.directory import read_config
from canary.runs.policies import load_policies
from runs.untrained_runs import LAKE, LIMIT, untrained_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs"), overrides=("algo.dead_zone=0.4",))


@pytest.fixture(scope="module")
def report(run: Path) -> dict:
    return frontier_report(LAKE, LIMIT, 0.1, epsilons=[0.02, 0.3], runs=[run])


def test_points_are_the_optima_of_the_exact_solvers(report: dict):
    mdp = from_environment(LAKE)
    assert len(report["frontier"]) == 3 * len([0.02, 0.1, 0.3])
    for point in report["frontier"]:
        best = CONSTRAINTS[point["constraint"]](mdp, LIMIT, point["epsilon"]).value
        assert point["return"] == pytest.approx(best, abs=2e-6)
        if point["epsilon"] == 0.1:
            assert report[f"{point['constraint']}_optimal_return"] == point["return"]
    assert list(report["shaped_optimal_return"]) == [str(zone) for zone in DEAD_ZONES]
    for point in report["shaped"]:
        best = best_under_cantelli(mdp, LIMIT, 0.1, dead_zone=point["dead_zone"]).value
        assert point["return"] == pytest.approx(best, abs=2e-6)


def test_seeds_state_the_bound_of_their_dead_zone(run: Path, report: dict):
    policies = load_policies(config_from_dict(read_config(run), LAKE), run)
    for row in report["runs"][0]["seeds"]:
        law = policy_law(
            LAKE, from_environment(LAKE), policies.account, *policies.of_seed(row["seed"])
        )
        assert row["dead_zone"] == 0.4
        assert row["shaped_bound"] == pytest.approx(law.guaranteed_violation(LIMIT, 0.4))
        assert row["shaped_bound"] >= row["violation_probability"]


def test_the_law_of_a_network_agrees_with_playing_it(run: Path, report: dict):
    config = config_from_dict(read_config(run), LAKE)
    policies = load_policies(config, run)
    (entry,) = report["runs"]
    assert [row["seed"] for row in entry["seeds"]] == [0, 3]
    assert entry["updates"] == 7
    row = entry["seeds"][1]
    count = 4000
    keys = jax.random.split(jax.random.key(5), count)
    ends = make_player(LAKE, policies.account)(*policies.of_seed(3), keys)
    cost, reward = np.asarray(ends.cost, float), np.asarray(ends.reward, float)
    chance = row["violation_probability"]
    assert 0.05 < chance < 0.95  # else the comparison would be of little use
    assert (cost > LIMIT).mean() == pytest.approx(
        chance, abs=4 * (chance * (1 - chance) / count) ** 0.5
    )
    assert cost.mean() == pytest.approx(row["cost_mean"], abs=4 * cost.std() / count**0.5)
    assert cost.std() == pytest.approx(row["cost_deviation"], rel=0.06)
    assert reward.mean() == pytest.approx(row["return"], abs=4 * reward.std() / count**0.5)


@pytest.mark.parametrize("clock", [None, LAKE.horizon])
def test_rows_of_the_grid_are_what_a_policy_sees_in_play(clock: int | None):
    lake = replace(LAKE, slip=0.0)
    mdp, account = from_environment(lake), CostAccount(LIMIT, 1.0, clock)
    lane, spent = start_lane(lake, jax.random.key(0)), []
    for time, action in enumerate(map(int, "1220012312")):  # down, onto the ice, right, back, ...
        rows = np.asarray(grid_inputs(lake, mdp, account, None, time))
        rows = rows.reshape(mdp.states, len(mdp.support), -1)
        seen = np.asarray(lane.inputs(account, None))
        spent.append(int(lane.spent))
        np.testing.assert_array_equal(rows[int(lane.environment.inner), spent[-1]], seen)
        lane = advance(lake, account, lane, np.asarray(action), jax.random.key(1))
    assert spent == [0, 0, 1, 1, 2, 2, 2, 2, 3, 3]


def test_the_figure_shows_curves_and_policies(report: dict, tmp_path: Path):
    far = report["runs"][0]["seeds"][0] | {"violation_probability": 1e-7, "return": -3.0}
    run = report["runs"][0] | {"algorithm": "cpo", "seeds": [far]}
    figure = frontier_figure(report | {"runs": [*report["runs"], run]})
    axes, _ = figure.axes
    curves = {str(line.get_label()).partition(":")[0]: line.get_xydata() for line in axes.lines}
    for label, name in {"VaR": "var", "CVaR": "cvar", "Cantelli": "cantelli"}.items():
        points = [point for point in report["frontier"] if point["constraint"] == name]
        expected = [(point["epsilon"], point["return"]) for point in points]
        np.testing.assert_allclose(curves[label], expected)
    drawn = np.concatenate([np.asarray(points.get_offsets()) for points in axes.collections])
    np.testing.assert_allclose(drawn[-1], (0.01, -3.0))  # a smaller P than half of any epsilon
    paths = save_frontier(report, tmp_path / "new")
    assert paths["figure"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert json.loads(paths["report"].read_text()) == report


def test_impossible_constraints_are_none_not_errors():
    # Every move may slip onto ice
    report = frontier_report(IcyLake(map="SH/HG", horizon=3), 0.5, 0.01, epsilons=[])
    frontier_figure(report)
    for name in ("var", "cvar", "cantelli"):
        assert report[f"{name}_optimal_return"] is None
        assert report["optima"][name]["violation_probability"] is None
    assert set(report["shaped_optimal_return"].values()) == {None}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"environment": replace(LAKE, horizon=9)}, "the run's own environment"),
        ({"limit": 2.0}, r"with the limit 1\.5, not 2"),
        ({"epsilon": 1.0}, "Epsilon"),
        ({"epsilons": [0.0]}, "Epsilon"),
    ],
)
def test_what_cannot_be_compared_is_refused(run: Path, change: dict, words: str):
    asked = {"environment": LAKE, "limit": LIMIT, "epsilon": 0.1, "runs": [run]}
    with pytest.raises(CanaryError, match=words):
        frontier_report(**asked | change)


def test_a_discounted_cost_and_an_environment_without_tables_are_refused(tmp_path: Path):
    discounted = untrained_run(tmp_path, overrides=("algo.cost_discount=0.9",))
    with pytest.raises(CanaryError, match="undiscounted"):
        frontier_report(LAKE, LIMIT, 0.1, runs=[discounted])
    with pytest.raises(CanaryError, match="object has no finite table"):
        frontier_report(object(), 1.0, 0.1)
