"""Tables and figures from stored results with known numbers."""

import shutil

import numpy as np
import polars as pl
import pytest
from scipy.stats import beta

from canary.numerics.statistics import gaussian_tail
from canary.reporting.statistics import collapse_time, running_rate, violation_jitter
from canary.studies import store
from canary.studies.catalogue import PUBLISHED
from canary.studies.page import VIEWS, read_page, save_views
from canary.studies.paper.table1 import outside
from canary.studies.table import (
    final_cells,
    final_numbers,
    margin_cell,
    probability,
    reward,
    with_error,
    with_interval,
)
from reporting.stored import BATCH, UPDATES, add_group, add_study, tables

OF_ROWS = [view for view in VIEWS if view not in ("relative-variance", "worst-case")]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("views")
    add_group(root / "units" / "a")
    add_group(root / "units" / "b", algorithm="cpo", seeds=(3, 4))
    paper = PUBLISHED["IcyLake"]["canary"]
    for view in ("study", "table1", "training-curves", "anatomy", "gaussian-tail"):
        add_study(root / view, {"one": "../units/a", "two": "../units/b"}, view=view, paper=paper)
    for epsilon in (0.02, 0.1):
        settings = ("constraint.limit=3", f"constraint.epsilon={epsilon}")
        add_group(root / "sweep" / f"u{epsilon}", overrides=settings)
    names = {"published-0.02": "u0.02", "published-0.1": "u0.1"}
    add_study(root / "sweep", names, view="epsilon-sweep")
    return root


def seed_of(results, view="study", row=0):
    """The first seed of a row, and its own episodes."""
    found = read_page(results / view).rows[row]
    seed, one = next(iter(found.seeds.items()))
    return found, one, tables([1, 2])["episodes"].filter(pl.col("seed") == seed)


# The store


def test_the_measures_of_a_seed_are_those_of_its_episodes(results):
    _, one, episodes = seed_of(results)
    half = episodes.filter(pl.col("iteration") >= UPDATES // 2)
    over, all_over = (table["cost"].to_numpy() > 5.5 for table in (half, episodes))
    assert one["violation"] == pytest.approx(over.mean())
    assert one["violation_whole"] == pytest.approx(all_over.mean())
    assert (one["episodes"], one["episodes_whole"]) == (len(half), len(episodes))
    jitter = violation_jitter(over, half["iteration"].to_numpy(), UPDATES // 2, UPDATES)
    assert one["jitter"] == pytest.approx(jitter)
    assert one["cost_deviation"] == pytest.approx(half["cost"].to_numpy().astype(float).std())
    updates, rate = running_rate(all_over, episodes["iteration"].to_numpy(), store.RATE_EPISODES)
    assert one["collapse_steps"] == collapse_time((updates + 1.0) * BATCH, rate)


def test_blocks_hold_counts_sums_and_quantiles_of_every_half(results):
    row, _, episodes = seed_of(results)
    blocks = row.blocks.filter(pl.col("seed") == 1)
    assert len(blocks) == UPDATES  # fewer updates than blocks: one each
    first, second = (
        blocks.filter(pl.col("steps") <= 20_000),
        blocks.filter(pl.col("steps") > 20_000),
    )
    assert first["block"].max() < store.HALF <= second["block"].min()
    cost, reward = (episodes[name].cast(pl.Float64) for name in ("cost", "return"))
    sums = [blocks[name].sum() for name in ("cost", "cost_squares", "reward")]
    assert sums == pytest.approx([cost.sum(), (cost**2).sum(), reward.sum()])
    assert blocks["violations"].sum() == (episodes["cost"] > 5.5).sum()
    assert blocks["update_tier_1"].to_list() == [1.0] * 15 + [0.0] * 25
    assert blocks["update_cost_mean"][0] == pytest.approx(7.0)


@pytest.mark.parametrize("file", ["row.json", "blocks-*.parquet"])
def test_what_was_changed_or_is_gone_is_not_shown(results, tmp_path, file):
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    path = next((tmp_path / "units" / "a").glob(file))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    text = save_views(tmp_path / "anatomy")["table"].read_text()
    assert "| one | not shown" in text
    assert path.name in text
    path.unlink()
    assert "| one | not " in save_views(tmp_path / "anatomy")["table"].read_text()


def test_an_extension_that_dies_leaves_the_row_as_it_was(tmp_path, monkeypatch):
    """At any of its writes."""
    folder = tmp_path / "g"
    add_group(folder, seeds=(2,))
    before = store.read_row(folder)
    for name in ("write_atomically", "write_sealed"):
        with monkeypatch.context() as patch:
            patch.setattr(store, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                add_group(folder, seeds=(1,))
        assert store.read_row(folder) == before
        assert len(store.read_blocks(folder, before)) == UPDATES
    add_group(folder, seeds=(1,))
    after = store.read_row(folder)
    assert list(after["seeds"]) == ["1", "2"]
    assert after["seeds"]["2"] == before["seeds"]["2"]
    assert store.read_blocks(folder, after)["seed"].to_list() == [1] * UPDATES + [2] * UPDATES
    assert len(list(folder.glob("blocks-*"))) == 1


# The usual table


@pytest.mark.parametrize("view", OF_ROWS)
def test_a_row_without_data_says_so_beside_the_others(tmp_path, view):
    results = tmp_path / "x"
    add_group(results / "short", updates=10)  # no episode in its second half
    add_group(results / "whole")
    add_study(results, {"short-1": "short", "none-1": "gone", "whole-1": "whole"}, view=view)
    paths = save_views(results)
    lines = [line for line in paths["table"].read_text().splitlines() if line.startswith("| ")]
    assert sum("not trained" in line for line in lines) == 1
    assert len(lines) >= 4
    assert len(pl.read_csv(paths["data"])) >= 2
    add_study(tmp_path / "empty", {"none-1": "gone"}, view=view)
    paths = save_views(tmp_path / "empty")
    assert list(paths) == ["table"]
    assert "not trained" in paths["table"].read_text()


def test_final_policies_on_episodes_have_exact_binomial_intervals(tmp_path):
    """0 and 8 violations in 500 episodes each; Clopper and Pearson by quantiles of the beta
    distribution."""
    add_group(tmp_path / "x" / "g", violations=(0, 8))
    add_study(tmp_path / "x", {"a": "g"})
    numbers = final_numbers(read_page(tmp_path / "x").rows[0])
    assert numbers["final_violation"] == pytest.approx(8 / 1000)
    assert numbers["final_violation_lower"] == pytest.approx(beta.ppf(0.025, 8, 993))
    assert numbers["final_violation_upper"] == pytest.approx(beta.ppf(0.975, 9, 992))
    # Two seeds: each at 97.5%, so that both hold together.
    assert numbers["final_largest_lower"] == pytest.approx(beta.ppf(0.0125, 8, 493))
    assert numbers["final_largest_upper"] == pytest.approx(beta.ppf(0.9875, 9, 492))
    assert (numbers["final_safe"], numbers["final_sure"]) == (1.0, 0.5)
    assert list(final_cells(numbers).values())[2:] == ["100% (50% sure)", "0.900"]


def test_exact_final_policies_have_no_interval_and_none_have_no_numbers(results, tmp_path):
    exact = final_numbers(read_page(results / "study").rows[0])
    assert list(final_cells(exact).values()) == ["0.0150", "0.0200", "100%", "0.900"]
    add_group(tmp_path / "x" / "g", final=False)
    add_study(tmp_path / "x", {"a": "g"})
    none = final_cells(final_numbers(read_page(tmp_path / "x").rows[0]))
    assert set(none.values()) == {"-"}


def test_cells_of_small_probabilities_and_margins():
    assert [probability(value) for value in (None, 0, 0.0123, 4.64e-5)] == ["-", "0", "0.0123", "4.6e-5"]  # fmt: skip
    numbers = {
        "p": 4.64e-5,
        "p_error": 0.00012,
        "j": 27.92,
        "j_error": 0.55,
        "q": 0.0123,
        "q_error": None,
    }
    assert with_error(numbers, "p") == "4.6e-5 ± 1.2e-4"
    assert with_error(numbers, "q") == "0.0123 ± -"
    assert with_error(numbers, "j", reward) == "27.9 ± 0.6"
    small = {"p": 0.9, "ends_lower": 0.85, "ends_upper": 0.95}
    assert with_interval(small, "p", "ends", reward) == "0.900 [0.850, 0.950]"
    assert margin_cell({"jitter": 0.0, "margin_per_jitter": None}) == "- (jitter 0)"


def test_rows_are_compared_with_the_first(results):
    """All seeds have the same returns and no seed is in both rows: ties, and no paired difference."""
    data = pl.read_csv(save_views(results / "study")["data"])
    assert data["improvement"].to_list() == [None, 0.5]
    assert data["reward_difference"].to_list() == [None, None]
    assert data["violation_whole"][0] > data["violation"][0]


# The paper's views


def test_table1_shows_the_published_row_below_ours(results):
    paths = save_views(results / "table1")
    lines = paths["table"].read_text().splitlines()
    ours = next(line for line in lines if line.startswith("| IcyLake | canary"))
    published = lines[lines.index(ours) + 1]
    assert "*published* | 0.016 ± 0.007 | 7.1 ± 2.7 | 87% | 0.67 ± 0.06 | 0.6" in published
    assert pl.read_csv(paths["data"])["violation_outside"][0] is not None


def test_a_number_is_marked_outside_the_published_interval_only():
    """IcyLake, Canary: P 0.016 ± 0.007, so [0.0018, 0.0302] with half a digit; 26 of 30 safe:
    [0.69, 0.96] exactly."""
    paper = PUBLISHED["IcyLake"]["canary"]
    row = {"violation": 0.0302, "jitter": 0.0071, "reward": 0.9, "safe": 0.97}
    assert outside(row, paper) == {
        "violation_outside": False,
        "jitter_outside": False,
        "reward_outside": True,
        "safe_outside": True,
    }
    assert outside(row | {"violation": 0.0303}, paper)["violation_outside"]
    assert not outside(row | {"safe": 0.7}, paper)["safe_outside"]
    assert outside(row, None)["violation_outside"] is None
    assert outside(row | {"jitter": None}, paper)["jitter_outside"] is None
    # Half of the last printed digit: 81 ± 3, 4.0 ± 0.6, 0.67 ± 0.06.
    edges = {
        "EcoAnt": 81 + 5.88 + 0.5,
        "PointGoal2500": 4 + 1.176 + 0.05,
        "IcyLake": 0.67 + 0.1176 + 0.005,
    }
    for environment, edge in edges.items():
        printed = PUBLISHED[environment]["canary"]
        assert not outside(row | {"reward": edge - 1e-6}, printed)["reward_outside"]
        assert outside(row | {"reward": edge + 1e-6}, printed)["reward_outside"]


def test_training_curves_are_a_figure_and_its_data(results):
    paths = save_views(results / "training-curves")
    data = pl.read_csv(paths["data"])
    assert data["row"].unique().sort().to_list() == ["one", "two"]
    own = tables([1, 2])["episodes"].filter(pl.col("iteration") == 0)
    rates = own.group_by("seed").agg((pl.col("cost") > 5.5).mean())["cost"]
    assert data["violation"][0] == pytest.approx(rates.mean())
    assert data["violation_deviation"][0] == pytest.approx(rates.std(ddof=0), abs=1e-6)
    assert paths["figure"].stat().st_size > 10_000


def test_anatomy_is_the_bound_on_the_cost_at_the_moments_of_the_update(results):
    paths = save_views(results / "anatomy")
    data = pl.read_csv(paths["data"]).filter(pl.col("row") == "one")
    mean = 1 + 6 * np.exp(-np.arange(20, 40) / 8)
    # The variance equals the mean in the made-up metrics
    expected = np.mean(49 * mean / 5.5**2 - (1 - mean / 5.5) ** 2)
    assert data["bound"].to_numpy() == pytest.approx(expected, rel=1e-4)
    assert "0 of 2" in paths["table"].read_text()


def test_the_gaussian_tail_of_stored_seeds(results):
    paths = save_views(results / "gaussian-tail")
    _, one, _ = seed_of(results, "gaussian-tail")
    tail = gaussian_tail(one["cost"], one["cost_deviation"], 5.5, one["violation"])
    assert pl.read_csv(paths["data"])["z"][0] == pytest.approx(tail.deviations)


def test_the_sweep_has_calibration_and_collapse(results):
    paths = save_views(results / "sweep")
    data = pl.read_csv(paths["data"])
    assert data["epsilon"].to_list() == [0.02, 0.1]
    assert data["below_threshold"][1] == pytest.approx(0.1 / data["violation"][1])
    assert data["collapsed_seeds"].to_list() == [2, 2]
    assert all(1000 <= time <= 20_000 for time in data["collapse_steps"])
