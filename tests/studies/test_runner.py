"""A study trains what is missing, finds it by its settings, and makes its table from the store."""

import json
import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from canary.cli import main
from canary.cli.studies import sweep_study, swept
from canary.config.run_config import config_to_dict
from canary.errors import CanaryError
from canary.studies import runner, store
from canary.studies.catalogue import ALL_STUDIES, PUBLISHED, Row, Study
from canary.studies.runner import Places, Request, configuration, reproduce, settings_of
from canary.studies.table import save_views

SMALL = (
    "algo.hidden=[8]",
    "training.environments=5",
    "training.rollout_length=100",
    "training.merge_capacity=0",
)
PAPER = PUBLISHED["IcyLake"]["ppo"]
PLAIN = Row(
    name="plain", about="as it is", algorithm="ppo", overrides=SMALL, paper=PAPER, seeds=(5, 6), steps=1000,
)  # fmt: skip
OTHER = replace(PLAIN, name="other", overrides=(*SMALL, "algo.entropy=0.1"), paper=None)
STUDY = Study(title="A small study", rows=(PLAIN, OTHER))


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    return Places(runs=root / "runs", results=root / "results")


@pytest.fixture(scope="module")
def written(places):
    return reproduce("small", STUDY, places, quiet=True)


@pytest.fixture
def copy(written, places, tmp_path):
    """The results of the study, without the runs."""
    shutil.copytree(places.results, tmp_path / "results")
    return Places(runs=tmp_path / "runs", results=tmp_path / "results")


def stored_seeds(folder):
    return list(store.read_row(folder).seeds)


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_table_has_a_line_per_row(written, places):
    lines = written["table"].read_text().splitlines()
    rows = [line for line in lines if line.startswith(("| plain", "| other"))]
    assert len(rows) == 2
    assert "2 × 1,000" in rows[0]
    data = pl.read_csv(written["data"])
    plain, other = (store.read_row(places.results / "small" / name) for name in ("plain", "other"))
    assert data["P"][0] == pytest.approx(np.mean(plain.each("violation")))
    assert data["J"][1] == pytest.approx(np.mean(other.each("return")))
    for path in (places.results / "small").rglob("*.*"):
        if path.suffix in (".json", ".md", ".csv"):
            assert str(places.results.parent) not in path.read_text()


def test_nothing_is_trained_twice_in_this_study_or_another(copy):
    before = contents(copy.results)
    reproduce("small", STUDY, copy, quiet=True)
    assert contents(copy.results) == before
    twin = replace(STUDY, title="Twin", rows=STUDY.rows[:1])
    text = reproduce("twin", twin, copy, quiet=True)["table"].read_text()
    assert "| plain | " in text
    assert "not trained" not in text
    assert not copy.runs.exists()
    assert not (copy.results / "twin" / "plain").exists()  # it is shown from where it is


def test_settings_are_compared_by_what_they_mean(copy):
    """Not by the name of the preset, nor by how the work is cut into programs."""
    stored = store.read_row(copy.results / "small" / "plain").config
    stored |= {"preset": "an older name"}
    del stored["training"]["chunk"], stored["training"]["stagger"]
    asked = settings_of(config_to_dict(configuration(PLAIN)))
    assert settings_of(stored) == asked
    stored["algorithm"]["settings"]["no_such_option"] = 1
    assert settings_of(stored) != asked


def test_results_with_other_settings_are_kept_beside_the_new_ones(copy):
    folder = copy.results / "small" / "plain"
    record = store.read_sealed(folder / "row.json")
    record["config"]["algorithm"]["settings"]["no_such_option"] = 1
    store.write_sealed(folder / "row.json", record)
    before = contents(folder)
    reproduce("small", STUDY, copy, Request(seeds=1, only=("plain",)), quiet=True)
    assert contents(folder) == before
    (beside,) = (copy.results / "small").glob("plain-*")
    assert stored_seeds(beside) == [5]


def test_seeds_that_are_added_equal_those_trained_together(places, written, copy):
    fresh = Places(runs=copy.runs, results=copy.results / "fresh")
    reproduce("small", STUDY, fresh, Request(seeds=(5,), only=("plain",)), quiet=True)
    folder = fresh.results / "small" / "plain"
    assert stored_seeds(folder) == [5]
    reproduce("small", STUDY, fresh, Request(only=("plain",)), quiet=True)
    ours, theirs = (
        store.read_row(one / "small" / "plain") for one in (fresh.results, places.results)
    )
    for row in (ours, theirs):
        for seed in row.seeds.values():
            seed.pop("train_seconds")
    assert (ours.config, ours.seeds) == (theirs.config, theirs.seeds)
    assert ours.blocks.equals(theirs.blocks)


def test_a_damaged_row_is_named_and_left_as_it_is(copy):
    folder = copy.results / "small" / "other"
    text = (folder / "row.json").read_text()
    (folder / "row.json").write_text(text.replace('"row": "other"', '"row": "othes"'))
    before = contents(copy.results)
    with pytest.raises(CanaryError, match=r"other/row\.json is damaged"):
        reproduce("small", STUDY, copy, quiet=True)
    assert contents(copy.results) == before
    assert not copy.runs.exists()


def test_a_study_without_results_says_so(tmp_path):
    with pytest.raises(CanaryError, match="nothing to rebuild"):
        save_views(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps({"view": "study", "rows": []}))
    with pytest.raises(CanaryError, match="damaged"):
        save_views(tmp_path)


# What is planned


def test_every_study_can_be_configured_and_differs_from_its_neighbours():
    for study in ALL_STUDIES.values():
        configs = [json.dumps(config_to_dict(configuration(row))) for row in study.rows]
        assert len(set(configs)) == len(configs)
        assert len({row.name for row in study.rows}) == len(study.rows)
        seeds = {seed for row in study.rows for seed in row.seeds}
        assert not seeds & {*range(100, 132)}, "settings were chosen on these seeds"
        assert study.units_of is None or study.units_of in ALL_STUDIES


def test_a_request_changes_seeds_steps_and_preset():
    study = ALL_STUDIES["table1"]
    ant = next(row for row in study.rows if row.name == "eco-ant-canary")
    paper = configuration(Request(scale="paper").row(ant))
    assert (paper.preset, paper.training.seeds) == ("paper", tuple(range(30)))
    assert paper.training.total_steps == 10_000_000
    small = configuration(Request(seeds=2, steps=5000, preset="paper").row(ant))
    assert small.training.seeds == (1500, 1501)
    assert (small.training.total_steps, small.preset) == (5000, "paper")
    with pytest.raises(CanaryError, match="must be at least 1"):
        configuration(Request(steps=0).row(ant))


def test_a_row_that_a_study_does_not_have_is_refused(tmp_path):
    places = Places(runs=tmp_path / "runs", results=tmp_path / "results")
    request = Request(only=("eco-ant-canari",))
    with pytest.raises(CanaryError, match=r"no row 'eco-ant-canari'; did you mean eco-ant-canary"):
        reproduce("table1", ALL_STUDIES["table1"], places, request, quiet=True)
    assert not list(tmp_path.iterdir())


def test_rows_that_a_request_makes_equal_share_their_results(copy):
    twin = replace(PLAIN, name="twin", preset="paper", paper=None)
    study = replace(STUDY, rows=(PLAIN, twin))
    text = reproduce("small", study, copy, Request(seeds=1, preset="paper"), quiet=True)["table"]
    assert text.read_text().count("1 × 1,000") == 2
    assert not (copy.results / "small" / "twin").exists()
    assert len(list(copy.runs.rglob("manifest.json"))) <= 1


def test_what_is_asked_for_one_row_leaves_the_others_as_they_are(copy):
    shown = reproduce("small", STUDY, copy, Request(seeds=1, only=("other",)), quiet=True)["data"]
    assert pl.read_csv(shown)["seeds × steps"].to_list() == ["2 × 1,000", "1 × 1,000"]


# The commands


def test_the_command_lists_studies_and_names_the_nearest(capsys):
    assert main(["reproduce"]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == len(ALL_STUDIES)
    assert f"{len(ALL_STUDIES['table1'].rows)} rows" in said
    assert main(["reproduce", "method"]) == 2
    assert "did you mean methods" in capsys.readouterr().err


def test_the_command_rebuilds(copy, capsys):
    before = contents(copy.results)
    rebuild = ["reproduce", "--rebuild", "--results", str(copy.results), "--quiet"]
    assert main([*rebuild, "small"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("table.md")
    assert contents(copy.results) == before
    (copy.results / "broken").mkdir()
    (copy.results / "broken" / "study.json").write_text("{")
    assert main(rebuild) == 2
    said = capsys.readouterr()
    assert str(copy.results / "small" / "table.md") in said.out
    assert str(copy.results / "broken" / "study.json") in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table1", "--rebuild", "--seeds", "2"], "--seeds"),
        (["relative-variance", "--engine", "ray"], "--engine"),
        (["relative-variance", "--steps", "5"], "--steps"),
        (["--scale", "paper"], "--scale"),
    ],
)
def test_an_option_without_meaning_is_refused(arguments, words, capsys):
    assert main(["reproduce", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert not said.out


def test_values_of_a_sweep_are_split_at_commas_outside_of_brackets():
    assert swept(["algo.target_kl=0.01,0.02", "algo.hidden=[64,64],[32]"]) == {
        "algo.target_kl": ["0.01", "0.02"],
        "algo.hidden": ["[64,64]", "[32]"],
    }
    for wrong, words in (
        (["algo.hidden=64,64"], "brackets"),
        (["algo.target_kl"], "section.setting=value,value"),
        (["algo.damping=1", "algo.damping=2"], "value once"),
    ):
        with pytest.raises(CanaryError, match=words):
            swept(wrong)


def test_every_combination_of_a_sweep_is_a_row_named_by_what_varies():
    axes = swept(["algo.entropy=0.01,0.02", "constraint.limit=3.5,5.5", "algo.gae_lambda=0.9"])
    base = Row(name="", algorithm="ppo", seeds=(0, 1), steps=None)
    study = sweep_study(base, axes)
    assert [row.name for row in study.rows] == [
        "entropy-0.01--limit-3.5", "entropy-0.01--limit-5.5",
        "entropy-0.02--limit-3.5", "entropy-0.02--limit-5.5",
    ]  # fmt: skip
    config = configuration(study.rows[1])
    assert config.constraint.limit == 5.5
    assert config.training.total_steps > 1000


def test_a_sweep_trains_all_and_shows_a_table(tmp_path, capsys, monkeypatch):
    """On an environment of another package, whose final policies play episodes."""
    monkeypatch.setattr(runner, "FINAL_EPISODES", 20)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    walk = "gymnasium:problems.host_environments:Walk --cost info:cost --set env.horizon=8"
    arguments = [
        "sweep", "--algo", "ppo", "--env", *walk.split(), "--limit", "1,4", "--epsilon", "0.2", "--seeds", "1",
        "--total-steps", "1000", "--name", "mine", "--quiet", *settings,
        "--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results"),
    ]  # fmt: skip
    assert main(arguments) == 0
    table = tmp_path / "results" / "mine" / "table.md"
    assert capsys.readouterr().out.splitlines()[0] == str(table)
    text = table.read_text()
    assert "--limit 1,4" in text
    assert str(tmp_path) not in text
    data = pl.read_csv(table.with_name("table.csv"))
    assert data["row"].to_list() == ["limit-1", "limit-4"]
    assert data["P"][0] >= data["P"][1]  # the same episodes under two limits
    assert data["final P upper"][0] > 0
    runs = set((tmp_path / "runs").rglob("manifest.json"))
    assert table.with_name("study.png").exists()
    shutil.rmtree(tmp_path / "results")
    monkeypatch.setattr("canary.studies.table.find_spec", lambda name: None)  # no matplotlib
    assert main(arguments) == 0
    assert table.exists()
    assert not table.with_name("study.png").exists()
    assert set((tmp_path / "runs").rglob("manifest.json")) == runs


@pytest.mark.parametrize("name", ["table1", "../table1", "", "-x"])
def test_a_sweep_takes_over_no_study_and_stays_in_its_folder(name, tmp_path, capsys):
    places = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(["sweep", f"--name={name}", "--limit", "3.5,5.5", *places]) == 2
    assert "name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
