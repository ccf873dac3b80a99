"""Tables and figures from stored results with known numbers."""

import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import beta

from canary.errors import CanaryError
from canary.reporting.results import HALF, RATE_EPISODES
from canary.reporting.statistics import collapse_time, running_rate, violation_jitter
from canary.studies import store
from canary.studies.catalogue import PUBLISHED
from canary.studies.paper.gaussian_tail import gaussian_tail
from canary.studies.paper.table1 import outside
from canary.studies.store import read_study
from canary.studies.table import VIEWS, cells, own_update, save_views
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
    found = read_study(results / view).rows[row]
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
    updates, rate = running_rate(all_over, episodes["iteration"].to_numpy(), RATE_EPISODES)
    assert one["collapse_steps"] == collapse_time((updates + 1.0) * BATCH, rate)


def test_blocks_hold_counts_sums_and_quantiles_of_every_half(results):
    row, _, episodes = seed_of(results)
    blocks = row.blocks.filter(pl.col("seed") == 1)
    assert len(blocks) == UPDATES  # fewer updates than blocks: one each
    first, second = (
        blocks.filter(pl.col("steps") <= 20_000),
        blocks.filter(pl.col("steps") > 20_000),
    )
    assert first["block"].max() < HALF <= second["block"].min()
    cost, reward = (episodes[name].cast(pl.Float64) for name in ("cost", "return"))
    sums = [blocks[name].sum() for name in ("cost", "cost_squares", "reward")]
    assert sums == pytest.approx([cost.sum(), (cost**2).sum(), reward.sum()])
    assert blocks["violations"].sum() == (episodes["cost"] > 5.5).sum()
    assert blocks["update_tier_1"].to_list() == [1.0] * 15 + [0.0] * 25
    assert blocks["update_cost_mean"][0] == pytest.approx(7.0)


@pytest.mark.parametrize("file", ["row.json", "blocks-*.parquet"])
def test_what_was_changed_is_refused(results, tmp_path, file):
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    path = next((tmp_path / "units" / "a").glob(file))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CanaryError, match=path.name):
        save_views(tmp_path / "anatomy")


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
        after = store.read_row(folder)
        assert (after.seeds, len(after.blocks)) == (before.seeds, UPDATES)
    add_group(folder, seeds=(1,))
    after = store.read_row(folder)
    assert list(after.seeds) == [1, 2]
    assert after.seeds[2] == before.seeds[2]
    assert after.blocks["seed"].to_list() == [1] * UPDATES + [2] * UPDATES
    assert len(list(folder.glob("blocks-*"))) == 1


# The tables


@pytest.mark.parametrize("view", OF_ROWS)
def test_a_row_without_data_says_so_beside_the_others(tmp_path, view):
    results = tmp_path / "x"
    add_group(results / "short", updates=10)  # no episode in its second half
    add_group(results / "whole")
    add_study(results, {"short-1": "short", "none-1": "gone", "whole-1": "whole"}, view=view)
    paths = save_views(results)
    lines = [line for line in paths["table"].read_text().splitlines() if line.startswith("| ")]
    assert sum("not trained" in line for line in lines) == 1
    assert len(pl.read_csv(paths["data"])) == 3
    add_study(tmp_path / "empty", {"none-1": "gone"}, view=view)
    paths = save_views(tmp_path / "empty")
    assert list(paths) == ["table", "data"]
    assert "not trained" in paths["table"].read_text()


def test_final_policies_on_episodes_have_exact_binomial_intervals(tmp_path):
    """0 and 8 violations in 500 episodes each, by quantiles of the beta distribution."""
    add_group(tmp_path / "x" / "g", violations=(0, 8))
    add_study(tmp_path / "x", {"a": "g"})
    found = cells(read_study(tmp_path / "x").rows[0])
    assert found["final P"].value == pytest.approx(8 / 1000)
    expected = beta.ppf(0.025, 8, 993), beta.ppf(0.975, 9, 992)
    assert found["final P"].interval == pytest.approx(expected)
    line = pl.read_csv(save_views(tmp_path / "x")["data"]).row(0, named=True)
    assert (line["final P lower"], line["final P upper"]) == pytest.approx(expected)


def test_exact_final_policies_have_no_interval_and_none_have_no_numbers(results, tmp_path):
    exact = cells(read_study(results / "study").rows[0])
    assert [str(exact[name]) for name in ("final P", "final J")] == ["0.0150", "0.900"]
    add_group(tmp_path / "x" / "g", final=False)
    add_study(tmp_path / "x", {"a": "g"})
    none = cells(read_study(tmp_path / "x").rows[0])
    assert [str(none[name]) for name in ("final P", "final J")] == ["-", "-"]


def test_table1_shows_the_published_row_below_ours(results):
    lines = save_views(results / "table1")["table"].read_text().splitlines()
    ours = next(line for line in lines if line.startswith("| IcyLake | canary"))
    published = lines[lines.index(ours) + 1]
    for cell in ("published", "0.0160 ± 0.0070", "0.0071 ± 0.0027", "87%", "0.670 ± 0.060"):
        assert cell in published


@pytest.mark.parametrize(
    ("violations", "names"),
    [
        ([0.016] * 10, ["safe"]),  # all ten safe; 26 of 30 has the interval 0.69 to 0.96
        ([0.016] * 9 + [0.021], []),
        ([0.03] * 10, ["safe"]),  # 0.016 + 1.96 * 0.007 + 0.0005 = 0.0302
        ([0.0303] * 10, ["P", "safe"]),
    ],
)
def test_what_lies_outside_the_published_interval(results, violations, names):
    row = read_study(results / "table1").rows[0]
    seeds = {
        seed: {"violation": p, "constraint": p, "jitter": 0.0071, "return": 0.79}
        for seed, p in enumerate(violations)
    }  # 0.67 + 1.96 * 0.06 + 0.005 = 0.7926
    assert outside(replace(row, seeds=seeds)) == names
    for one in seeds.values():
        one["return"] = 0.793
    order = ["P", "jitter", "J", "safe"]
    assert outside(replace(row, seeds=seeds)) == sorted([*names, "J"], key=order.index)


def test_curves_are_means_and_deviations_over_seeds(results):
    line = seed_of(results)[0].curve("violation")
    own = tables([1, 2])["episodes"].filter(pl.col("iteration") == 0)
    shares = own.group_by("seed").agg((pl.col("cost") > 5.5).mean())["cost"]
    assert line["violation"][0] == pytest.approx(shares.mean())
    assert line["violation_deviation"][0] == pytest.approx(shares.std(ddof=0))
    assert save_views(results / "training-curves")["figure"].stat().st_size > 10_000


def test_anatomy_is_the_bound_on_the_cost_at_the_moments_of_the_update(results):
    _, one, _ = seed_of(results, "anatomy")
    mean = 1 + 6 * np.exp(-np.arange(20, 40) / 8)
    # The variance equals the mean in the made-up metrics
    expected = np.mean(49 * mean / 5.5**2 - (1 - mean / 5.5) ** 2)
    assert one["cantelli"] == pytest.approx(expected, rel=1e-4)
    text = save_views(results / "anatomy")["table"].read_text()
    assert "| 0 of 2 |" in text
    assert "| *IcyLake, published* | 22 of 30 | 26 of 30 |" in text


def test_the_gaussian_tail_of_stored_seeds(results):
    data = pl.read_csv(save_views(results / "gaussian-tail")["data"])
    row, *_ = seed_of(results, "gaussian-tail")
    each = [(one["cost"], one["cost_deviation"], one["violation"]) for one in row.seeds.values()]
    tails = [gaussian_tail(mean, deviation, 5.5, p) for mean, deviation, p in each]
    assert data["z"][0] == pytest.approx(np.median([tail.deviations for tail in tails]))
    counts = sum(p > 0 for *_, p in each), len(each)
    assert data["seeds with a violation"][0] == "{} of {}".format(*counts)


def test_the_sweep_has_calibration_and_collapse(results):
    data = pl.read_csv(save_views(results / "sweep")["data"])
    assert data["ε"].to_list() == [0.02, 0.1]
    assert data["ε / P"][1] == pytest.approx(0.1 / data["P"][1])
    assert data["collapsed"].to_list() == ["2 of 2", "2 of 2"]
    assert all(1000 <= time <= 20_000 for time in data["collapse, steps"])


def test_claims_are_about_the_authors_reading(results, tmp_path):
    """Of two rows the one with the paper's networks; a claim holds or not by its numbers."""
    for one in ("equations", "small", "own"):
        add_group(tmp_path / "x" / one)
    names = {"equations": "equations", "small": "small", "own": "own"}
    add_study(tmp_path / "x", names, view="anatomy")
    rows = read_study(tmp_path / "x").rows
    for row, preset, overrides in zip(
        rows, ("paper", "authors", "authors"), ([], ["algo.hidden=64,64"], []), strict=True
    ):
        row.about.update(preset=preset, overrides=overrides)
    assert own_update(rows, "IcyLake", "canary") is rows[2]
    assert own_update(rows[:2], "IcyLake", "canary") is rows[1]
    assert own_update(rows, "EcoAnt", "canary") is None
    shutil.copytree(results / "sweep", tmp_path / "sweep")
    add_study(
        tmp_path / "sweep",
        {"authors-0.02": "u0.02", "authors-0.1": "u0.1"},
        view="epsilon-sweep",
        preset="authors",
    )
    paths = save_views(tmp_path / "sweep")
    ratios = pl.read_csv(paths["data"])["ε / P"]
    inside = sum(ratio is not None and 2 <= ratio <= 4 for ratio in ratios)
    assert f"in the range at {inside} of 2 thresholds" in paths["table"].read_text()
