"""A study trains what is missing, keeps what its views need, and makes tables and figures from that
alone."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from canary.cli import main
from canary.config.config import config_to_dict
from canary.errors import CanaryError
from canary.studies import store
from canary.studies.catalogue import ALL_STUDIES
from canary.studies.data import PaperRow, Study, Variant
from canary.studies.paper import EPSILONS
from canary.studies.plan import Request, configuration, meaning, meaning_of, planned
from canary.studies.run import Places, reproduce
from canary.studies.views import save_views

SMALL = (
    "algo.hidden=[8]",
    "training.environments=5",
    "training.rollout_length=100",
    "training.merge_capacity=0",
)
STUDY = Study(
    title="A small study",
    seeds=(5, 6),
    total_steps=1000,
    variants=(
        Variant(name="plain", about="as it is", algorithm="ppo", overrides=SMALL,
                paper=PaperRow(violation=0.3, jitter=0.02, safe=0.0, reward=1.0)),
        Variant(name="other", about="bolder", algorithm="ppo", overrides=(*SMALL, "algo.entropy=0.1")),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    return Places(runs=root / "runs", results=root / "results")


@pytest.fixture(scope="module")
def written(places):
    return reproduce("small", STUDY, places, quiet=True)


@pytest.fixture
def copy(written, places, tmp_path):
    """The results of the study, to do harm to; there are no runs beside them."""
    shutil.copytree(places.results, tmp_path / "results")
    return Places(runs=tmp_path / "runs", results=tmp_path / "results")


def contents(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_table_has_a_row_per_variant(written, places):
    text = written["table"].read_text()
    assert "canary reproduce small" in text
    rows = [line for line in text.splitlines() if line.startswith(("| plain", "| other"))]
    assert len(rows) == 2
    assert "0.300, 0.0200, 0%, 1.00" in rows[0]
    assert "2 × 1,000" in rows[0]
    data = pl.read_csv(written["data"])
    summary = json.loads((places.results / "small" / "plain" / "summary.json").read_text())
    assert data["violation"][0] == pytest.approx(summary["violation_probability"])
    assert data["final_largest_violation"][0] >= data["final_violation"][0] > 0
    per_seed = [
        json.loads((places.results / "small" / name / "summary.json").read_text())[
            "return_per_seed"
        ]
        for name in ("plain", "other")
    ]
    assert data["reward_difference"][0] is None
    assert data["reward_difference"][1] == pytest.approx(
        np.mean(per_seed[1]) - np.mean(per_seed[0])
    )
    with Image.open(written["figure"]) as figure:
        assert figure.size[0] > 500


def test_results_name_no_place_on_this_machine(written, places):
    for path in (places.results / "small").rglob("*.*"):
        if path.suffix in (".json", ".md", ".csv"):
            assert str(places.results.parent) not in path.read_text()


def test_nothing_is_trained_twice(copy):
    before = contents(copy.results)
    reproduce("small", STUDY, copy, quiet=True)
    assert contents(copy.results) == before
    assert not copy.runs.exists()


def test_another_study_with_the_same_settings_trains_nothing(copy):
    reproduce("twin", replace(STUDY, title="Twin", variants=STUDY.variants[:1]), copy, quiet=True)
    assert not copy.runs.exists()
    assert store.stored_seeds(copy.results / "twin" / "plain") == [5, 6]


def test_settings_are_compared_by_what_they_mean(written, places, copy):
    """A setting that an older version did not have, at its default, and another name of the preset
    change nothing."""
    group = copy.results / "small" / "plain"
    config = json.loads((group / "config.json").read_text())
    config["preset"] = "an older name"
    del config["training"]["chunk"], config["training"]["stagger"]
    assert meaning_of(config) == meaning(configuration(STUDY.variants[0], STUDY))
    config["training"]["checkpoint_seconds"] = 7.0
    (group / "config.json").write_text(json.dumps(config))
    reproduce("small", STUDY, copy, quiet=True)
    assert not copy.runs.exists()


def test_units_of_another_version_are_kept_beside_the_new_ones(copy):
    group = copy.results / "small" / "plain"
    config = json.loads((group / "config.json").read_text())
    config["algorithm"]["settings"]["no_such_option"] = 1
    (group / "config.json").write_text(json.dumps(config))
    before = contents(group)
    written = reproduce("small", STUDY, copy, Request(seeds=1, only=("plain",)), quiet=True)
    assert contents(group) == before
    beside = [path.name for path in (copy.results / "small").glob("plain-*")]
    assert len(beside) == 1
    assert (
        "Kept in the store, with other settings or by another version: `plain`."
        in written["table"].read_text()
    )


def test_more_seeds_extend_and_equal_those_trained_together(written, places, copy):
    one = Request(seeds=(5,), only=("plain",))
    fresh = Places(runs=copy.runs, results=copy.results / "fresh")
    reproduce("small", STUDY, fresh, one, quiet=True)
    group = fresh.results / "small" / "plain"
    assert store.stored_seeds(group) == [5]
    reproduce("small", STUDY, fresh, Request(only=("plain",)), quiet=True)
    assert store.stored_seeds(group) == [5, 6]
    together = places.results / "small" / "plain"
    for kind in ("episodes", "metrics"):
        assert store.read_table(group, kind).equals(store.read_table(together, kind))
    for name in ("exact.json", "config.json"):
        assert (group / name).read_bytes() == (together / name).read_bytes()
    ours, theirs = (json.loads((place / "summary.json").read_text()) for place in (group, together))
    clock = ("steps_per_second", "wall_seconds")
    assert {k: v for k, v in ours.items() if k not in clock} == {
        k: v for k, v in theirs.items() if k not in clock
    }


def test_a_group_that_was_being_extended_when_the_process_died_is_as_it_was(copy, monkeypatch):
    group = copy.results / "small" / "plain"
    units = store.read_units(group)
    shutil.rmtree(group)
    store.add(group, units.only((5,)))
    write = store.directory.write_json

    def die(path, value):
        if path.name == "provenance.json":
            raise KeyboardInterrupt
        write(path, value)

    monkeypatch.setattr(store.directory, "write_json", die)
    with pytest.raises(KeyboardInterrupt):
        store.add(group, units.only((6,)))
    monkeypatch.setattr(store.directory, "write_json", write)
    assert store.stored_seeds(group) == [5]
    assert "was being extended" in save_views(copy.results / "small")["table"].read_text()
    store.add(group, units.only((6,)))
    assert store.stored_seeds(group) == [5, 6]
    assert store.read_table(group, "episodes").equals(units.tables["episodes"])


def test_what_a_killed_writer_left_in_a_complete_group_is_removed(copy):
    group = next(path.parent for path in (copy.results / "small").glob("*/provenance.json"))
    before = contents(group)
    (group / ".provenance.json.0123456789abcdef.tmp").write_text("half")
    reproduce("small", STUDY, copy, quiet=True)
    assert contents(group) == before


def test_a_new_group_that_dies_before_its_provenance_holds_no_seed(copy, monkeypatch):
    """Else it would pass for one of the time before there was any, and never be completed."""
    group = copy.results / "small" / "plain"
    units, write = store.read_units(group), store.directory.write_json
    shutil.rmtree(group)

    def dying(path, value):
        if path.name == "provenance.json" and value["units"]:
            raise KeyboardInterrupt
        write(path, value)

    monkeypatch.setattr(store.directory, "write_json", dying)
    with pytest.raises(KeyboardInterrupt):
        store.add(group, units)
    assert (group / "summary.json").exists()
    assert store.stored_seeds(group) == []


def test_final_policies_of_older_results_are_measured_where_their_run_is_still_there(places, copy):
    """As results were kept before: no final policies, no provenance."""
    group = copy.results / "small" / "plain"
    before = (group / "exact.json").read_bytes()
    for name in ("exact.json", "provenance.json"):
        (group / name).unlink()
    reproduce("small", STUDY, copy, quiet=True)
    assert not (group / "exact.json").exists()
    reproduce("small", STUDY, Places(runs=places.runs, results=copy.results), quiet=True)
    assert (group / "exact.json").read_bytes() == before
    assert store.stored_seeds(group) == [5, 6]


def test_views_are_rebuilt_byte_for_byte(copy):
    before = contents(copy.results)
    for name in ("table.md", "table.csv", "study.png"):
        (copy.results / "small" / name).unlink()
    save_views(copy.results / "small")
    assert contents(copy.results) == before


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("summary.json", lambda path: path.write_bytes(path.read_bytes()[:50])),
        ("config.json", lambda path: path.unlink()),
        ("summary.json", lambda path: path.write_text('{"foreign": 1}')),
        ("provenance.json", lambda path: path.write_text("[]")),
        ("episodes.parquet", lambda path: path.write_bytes(path.read_bytes()[:-100])),
        ("metrics.parquet", lambda path: path.unlink()),
        ("episodes.parquet", lambda path: pl.DataFrame({"x": [1]}).write_parquet(path)),
        ("exact.json", lambda path: path.write_text("{")),
    ],
    ids=[
        "truncated",
        "missing",
        "foreign",
        "no object",
        "cut table",
        "no table",
        "foreign table",
        "cut numbers",
    ],
)
def test_a_damaged_group_is_named_and_the_rest_is_reported(copy, name, harm):
    """By --rebuild, and by training what is missing, which leaves it as it is."""
    group = copy.results / "small" / "other"
    harm(group / name)
    before = contents(group)
    rebuilt = save_views(copy.results / "small")["table"].read_text()
    trained = reproduce("small", STUDY, copy, quiet=True)["table"].read_text()
    for text in (rebuilt, trained):
        assert "| plain |" in text
        assert "| other |" not in text
        assert str(group) in text
    assert contents(group) == before
    assert not copy.runs.exists()


def test_a_group_dies_at_any_write_of_its_extension_and_no_number_moves_to_another_seed(
    copy, monkeypatch
):
    """The new seed comes before the old one, so that lists per seed shift."""
    group = copy.results / "small" / "plain"
    units = store.read_units(group)
    write, died = store.directory.write_atomically, 0
    for number in range(1, 20):
        shutil.rmtree(group)
        store.add(group, units.only((6,)))
        left = [number]

        def dying(path, data, left=left):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            write(path, data)

        monkeypatch.setattr(store.directory, "write_atomically", dying)
        monkeypatch.setattr(
            store.directory,
            "write_json",
            lambda path, value: dying(path, json.dumps(value).encode()),
        )
        try:
            store.add(group, units.only((5,)))
        except KeyboardInterrupt:
            died += 1
        monkeypatch.undo()
        if store.stored_seeds(group) == [6]:
            assert store.read_units(group).per_seed["exact"][6] == units.per_seed["exact"][6]
            store.add(group, units.only((5,)))
        found = store.read_units(group)
        assert found.per_seed == units.per_seed
        assert found.tables["episodes"].equals(units.tables["episodes"])
        if died < number:
            break
    assert died == 6  # two tables, exact, config, summary, provenance


def test_a_study_without_results_says_so(tmp_path):
    with pytest.raises(CanaryError, match=r"no study.json, so there is nothing to rebuild"):
        save_views(tmp_path)
    (tmp_path / "study.json").write_text(
        json.dumps({"view": "study", "rows": [], "name": "x", "title": "X"})
    )
    with pytest.raises(CanaryError, match="holds no finished seed yet"):
        save_views(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps({"view": "what"}))
    with pytest.raises(CanaryError, match="is damaged"):
        save_views(tmp_path)


def test_an_unknown_variant_is_a_sentence(places):
    with pytest.raises(CanaryError, match="no variant 'plane'; did you mean plain"):
        reproduce("small", STUDY, places, Request(only=("plane",)), quiet=True)


def test_every_study_can_be_configured_and_differs_from_its_neighbours():
    for study in ALL_STUDIES.values():
        configs = [
            json.dumps(config_to_dict(configuration(variant, study))) for variant in study.variants
        ]
        assert len(set(configs)) == len(configs)
        seeds = {seed for variant in study.variants for seed in variant.seeds or study.seeds}
        assert not seeds & {*range(100, 116)}, "settings were chosen on these seeds"


def test_the_scale_of_the_paper_is_its_equations_steps_and_seeds():
    study = ALL_STUDIES["table1"]
    ant = next(variant for variant in study.variants if variant.name == "eco-ant-canary")
    config = configuration(ant, study, Request(scale="paper"))
    assert config.preset == "paper"
    assert config.training.seeds == tuple(range(30))
    assert config.training.total_steps == 10_000_000
    small = configuration(ant, study, Request(seeds=2, steps=5000, preset="paper"))
    assert small.training.seeds == (1500, 1501)
    assert (small.training.total_steps, small.preset) == (5000, "paper")


def test_rows_that_a_scale_makes_equal_are_one():
    study = ALL_STUDIES["table1"]
    names = [row.variant.name for row in planned("table1", study, Request(scale="paper"))]
    assert len(names) == 15
    assert "icy-lake-canary-published" in names
    assert "icy-lake-canary" not in names
    assert len(planned("table1", study, Request())) == len(study.variants) == 20


def test_one_row_of_several_has_the_name_that_is_true_of_it():
    """With the paper's preset nothing is shaped, and no variant is what `fast` makes of it."""
    study = ALL_STUDIES["epsilon-sweep"]
    rows = planned("epsilon-sweep", study, Request(scale="paper"))
    assert [row.variant.name for row in rows] == [f"unshaped-{e}" for e in EPSILONS]
    assert [row.also for row in rows] == [(f"shaped-{e}",) for e in EPSILONS]
    with pytest.raises(CanaryError, match=r"shaped-0.1 is what unshaped-0.1 is"):
        planned("epsilon-sweep", study, Request(preset="paper", only=("shaped-0.1",)))
    for name, study in ALL_STUDIES.items():
        for row in planned(name, study, Request(preset="paper")):
            assert row.config.preset == "paper"
            assert "fast" not in row.about
            assert "shaped" not in row.about
        for row in planned(name, study, Request()):
            assert row.about == row.variant.about
    [row] = planned("ablation", ALL_STUDIES["ablation"], Request(preset="paper"))
    assert (row.variant.name, row.about, len(row.also)) == ("default", "the `paper` preset", 11)


def test_a_row_of_several_has_the_most_seeds_of_them():
    rows = planned("table1", ALL_STUDIES["table1"], Request(preset="paper"))
    row = next(row for row in rows if row.variant.name == "icy-lake-canary-published")
    assert row.also == ("icy-lake-canary",)
    assert row.config.training.seeds == tuple(range(4100, 4110))


def test_the_table_says_which_variants_are_one_row(copy):
    study = replace(STUDY, variants=(*STUDY.variants, replace(STUDY.variants[0], name="twin")))
    text = reproduce("small", study, copy, quiet=True)["table"].read_text()
    assert "not shown twice: `twin` is `plain`." in text
    assert "| twin |" not in text


def test_a_table_shows_the_seeds_that_were_asked_for(copy):
    """And those that were not are kept, until they are."""
    table = reproduce("small", STUDY, copy, Request(seeds=1), quiet=True)["table"]
    assert "1 × 1,000" in table.read_text()
    assert "holds 1 other seed" in table.read_text()
    before = contents(copy.results)
    save_views(copy.results / "small")
    assert contents(copy.results) == before
    table = reproduce("small", STUDY, copy, quiet=True)["table"]
    assert "2 × 1,000" in table.read_text()
    assert "other seed" not in table.read_text()
    assert not copy.runs.exists()


def test_a_trained_group_that_is_gone_is_told_until_it_is_there_again(copy):
    group = copy.results / "small" / "other"
    kept = copy.results / "kept"
    group.rename(kept)
    for _ in range(2):
        table = reproduce("small", STUDY, copy, Request(only=("plain",)), quiet=True)["table"]
        assert f"{group} was trained and is gone" in table.read_text()
    kept.rename(group)
    assert "gone" not in save_views(copy.results / "small")["table"].read_text()


def test_what_is_asked_for_some_variants_leaves_the_others_as_they_are():
    study = ALL_STUDIES["table1"]
    request = Request(seeds=2, steps=5000, preset="paper", only=("icy-lake-canary",))
    rows = {row.variant.name: row.config for row in planned("table1", study, request)}
    assert len(rows) == 20
    asked, other = rows["icy-lake-canary"], rows["eco-ant-canary"]
    assert (asked.preset, asked.training.total_steps, len(asked.training.seeds)) == (
        "paper",
        5000,
        2,
    )
    assert (other.preset, other.training.total_steps, len(other.training.seeds)) == (
        "fast",
        10_000_000,
        3,
    )
    same = planned("table1", study, Request(seeds=1, preset="paper", only=("icy-lake-canary",)))
    assert "icy-lake-canary" in [row.variant.name for row in same]
    with pytest.raises(CanaryError, match="must be at least 1"):
        planned("table1", study, Request(steps=0))
    with pytest.raises(CanaryError, match="--steps has no meaning"):
        reproduce(
            "x",
            ALL_STUDIES["relative-variance"],
            Places(runs=Path(), results=Path()),
            Request(steps=5),
        )


def test_the_command_lists_studies_and_names_the_nearest(capsys):
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.count("\n") == len(ALL_STUDIES)
    assert main(["reproduce", "method"]) == 2
    assert "did you mean methods" in capsys.readouterr().err


def test_the_command_rebuilds(copy, capsys, monkeypatch):
    monkeypatch.setitem(ALL_STUDIES, "small", STUDY)
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
        (["table1", "--rebuild", "--seeds", "2"], "so --seeds has no meaning with it"),
        (["table1", "--rebuild", "--scale", "paper"], "so --scale has no meaning with it"),
        (["table1", "--rebuild", "--engine", "ray"], "so --engine has no meaning with it"),
        (["relative-variance", "--engine", "ray"], "--engine has no meaning for it"),
        (["--seeds", "3"], "--seeds is of one study"),
        (["--scale", "paper"], "--scale is of one study"),
    ],
)
def test_an_option_without_meaning_is_refused(arguments, words, capsys):
    assert main(["reproduce", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert not said.out
