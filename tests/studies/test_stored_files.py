"""Whatever happens to the stored files of a study, what is wrong is one sentence that names the file,
and the rest is shown."""

import copy
import json
import shutil
from dataclasses import asdict

import polars as pl
import pytest

from canary.cli import main
from canary.errors import CanaryError
from canary.reporting.page import make_report, study_subjects
from canary.studies import anatomy, curves, sweep, table, table1, tail
from canary.studies.checks import read_points, read_study
from canary.studies.paper import PUBLISHED
from canary.studies.rows import damage, load_rows
from canary.studies.views import save_views
from reporting.stored import add_group, add_study

VIEWS = ("study", "table1", "training-curves", "epsilon-sweep", "anatomy", "gaussian-tail")
POINT = {
    "constraint": "cvar",
    "limit": 5.5,
    "epsilon": 0.02,
    "estimator": "gae",
    "seed": 1,
    "value": 0.3,
    "gradient": None,
}
ABSENT = object()
WRONG = (ABSENT, None, "x", -3.5, True, [], {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study of two groups, with everything that a row may have."""
    root = tmp_path_factory.mktemp("whole")
    add_group(root / "tiny" / "one")
    add_group(root / "tiny" / "two", algorithm="cpo")
    paper = asdict(PUBLISHED["IcyLake"]["canary"])
    add_study(
        root / "tiny",
        {"one": "one", "two": "two"},
        paper=paper,
        seeds=[1, 2],
        trained=True,
        environment="IcyLake",
    )
    return root


@pytest.fixture
def results(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "results")
    return tmp_path / "results"


def change(path, name, value):
    """Replace one field, such as training.seeds, or remove it."""
    content = json.loads(path.read_text())
    place = content
    *parents, last = name.split(".")
    for parent in parents:
        place = place[int(parent) if isinstance(place, list) else parent]
    if value is ABSENT:
        del place[int(last) if isinstance(place, list) else last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    path.write_text(json.dumps(content))


def names_in(content, depth):
    """All fields of a JSON file down to a depth."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in items:
        yield str(name)
        if depth > 1 and isinstance(value, dict | list):
            yield from (f"{name}.{rest}" for rest in names_in(value, depth - 1))


def shown(results):
    """The names of the rows after all views have made their numbers of them, and what is said."""
    study = read_study(results)
    rows, notes = load_rows(results, study)
    if "two" in [row.name for row in rows]:  # the one that something was done to
        _use(results, rows)
    return [row.name for row in rows], " ".join(notes)


def _use(results, rows):
    table.table_rows(rows)
    for row in rows:
        table1.outside(table.numbers(row), row.about["paper"])
        sweep.calibration(row)
        curves.curve(row)
        tail.per_seed(row)
        anatomy.per_seed(row)
    study_subjects(results, lambda run, config: None)


def quick(monkeypatch):
    """Without the intervals, which take most of the time."""
    monkeypatch.setattr(table, "bootstrap", lambda statistic, strata: (0.0, 0.0, 0.0))
    monkeypatch.setattr(table, "improvement_probability", lambda ours, theirs: None)


@pytest.mark.parametrize("name", ["config", "summary", "exact", "provenance"])
def test_no_field_of_a_group_can_break_a_view(results, name, monkeypatch):
    """Every field is put wrong in every way; the group is then shown or named, the other is
    shown."""
    quick(monkeypatch)
    group = results / "tiny" / "two"
    path = group / f"{name}.json"
    before = path.read_text()
    refused = 0
    depth = {"summary": 1, "provenance": 3}.get(name, 2)
    for field in names_in(json.loads(before), depth):
        for value in WRONG:
            change(path, field, value)
            names, notes = shown(results / "tiny")
            assert "one" in names
            if "two" not in names:
                assert str(group) in notes, (field, value)
                assert "; re" in notes  # restore it, or reproduce the study
                refused += 1
            path.write_text(before)
    assert refused > 20


def test_no_field_of_study_json_can_break_a_view(results, monkeypatch):
    quick(monkeypatch)
    path = results / "tiny" / "study.json"
    before = path.read_text()
    refused = 0
    for field in names_in(json.loads(before), 4):
        for value in WRONG:
            path.write_text(before)
            change(path, field, value)
            try:
                read_study(results / "tiny")
            except CanaryError as error:
                refused += str(path) in str(error)
            else:
                shown(results / "tiny")
    assert refused > 100


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("title", ABSENT, "it has no 'title'"),
        ("rows.0.paper", ABSENT, "rows[0] has no 'paper'"),
        ("rows.1.group", "../../elsewhere", "rows[1].group is not the name of a group"),
        ("view", "pie", "there is no view 'pie'"),
    ],
)
def test_what_is_wrong_with_study_json_is_said(results, field, value, words):
    change(results / "tiny" / "study.json", field, value)
    with pytest.raises(CanaryError) as caught:
        save_views(results / "tiny")
    assert f"{results / 'tiny' / 'study.json'} is damaged ({words}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("provenance", {"units": {"4100": 3}}, "units.4100 is not an object"),
        ("provenance", {}, "it has no 'units'"),
        ("exact", {}, "it has no 'violation_per_seed'"),
        ("exact", {"violation_per_seed": [0.1], "return_per_seed": [1]}, "a list of 2 entries"),
        ("summary", {"violation_probability": "x"}, "violation_probability is not a number"),
        ("summary", {"limit": 7.0}, "is of another setting than config.json"),
        ("config", {"training": {}}, "training has no 'seeds'"),
        ("config", {"algorithm": []}, "algorithm is not an object"),
    ],
)
@pytest.mark.parametrize("view", VIEWS)
def test_a_damaged_file_is_named_below_every_table(results, name, content, words, view):
    path = results / "tiny" / "two" / f"{name}.json"
    whole = json.loads(path.read_text()) if name in ("summary", "config") else {}
    path.write_text(json.dumps(whole | content))
    change(results / "tiny" / "study.json", "view", view)
    text = save_views(results / "tiny")["table"].read_text()
    assert f"- {path} is" in text
    assert words in text


def test_the_report_says_what_it_cannot_show(results, tmp_path):
    (results / "tiny" / "two" / "exact.json").write_text("{}")
    page = make_report(["tiny"], tmp_path, results, tmp_path / "p.html", frontier=False)
    assert "exact.json is damaged" in page.read_text()
    for group in ("one", "two"):
        shutil.rmtree(results / "tiny" / group)
        change(
            results / "tiny" / "study.json", f"rows.{('one', 'two').index(group)}.trained", False
        )
    with pytest.raises(CanaryError, match="holds no finished seed yet"):
        make_report(["tiny"], tmp_path, results, tmp_path / "q.html", frontier=False)


def test_the_report_of_a_study_of_points_says_where_its_table_is(results, tmp_path):
    add_study(results / "points", {}, view="relative-variance")
    with pytest.raises(CanaryError, match=r"points trains no policy.*points/table.md"):
        make_report(["points"], tmp_path, results, tmp_path / "p.html", frontier=False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "points.json is damaged (it has no 'points')"),
        ({"points": []}, "holds no point yet"),
        ({"points": [{"a": 1}]}, "points.json is damaged (points[0] has no 'constraint')"),
        ({"points": [POINT | {"value": "x"}]}, "points[0].value is not a number or null"),
        ({"points": [POINT | {"seed": 9}]}, "holds no point yet"),
    ],
)
def test_damaged_points_are_named(tmp_path, content, words):
    add_study(tmp_path / "points", {}, view="relative-variance")
    change(tmp_path / "points" / "study.json", "seeds", [1])
    (tmp_path / "points" / "points.json").write_text(json.dumps(content))
    with pytest.raises(CanaryError) as caught:
        save_views(tmp_path / "points")
    assert words in str(caught.value)


def test_no_field_of_a_point_is_read_unchecked(tmp_path):
    path = tmp_path / "points.json"
    for name in POINT:
        for value in ({}, [], ABSENT, True):
            point = copy.deepcopy(POINT) | {name: value}
            if value is ABSENT:
                del point[name]
            path.write_text(json.dumps({"points": [point]}))
            with pytest.raises(CanaryError, match=name):
                read_points(path)


def remove(group, name):
    (group / name).unlink()


@pytest.mark.parametrize(
    ("harm", "words", "is_shown"),
    [
        (lambda g: remove(g, "exact.json"), "has neither exact.json nor final.json", True),
        (lambda g: remove(g, "provenance.json"), "has no provenance.json", True),
        (shutil.rmtree, "was trained and is gone", False),
        (lambda g: (shutil.rmtree(g), g.write_text("")), "is a file where the folder", False),
        (lambda g: change(g / "provenance.json", "units", {}), "holds no finished seed", False),
        (
            lambda g: (remove(g, "provenance.json"), remove(g, "summary.json")),
            "neither provenance.json nor summary.json",
            False,
        ),
        (
            lambda g: change(g / "exact.json", "seeds", [7, 8]),
            "exact.json is of other seeds (7 8) than its group (1 2)",
            False,
        ),
        (
            lambda g: change(g / "summary.json", "seed_ids", [1, 3]),
            "have no row of seed 3",
            False,
        ),
        (
            lambda g: shutil.copy(g.parent / "other" / "episodes.parquet", g),
            "episodes.parquet is not what summary.json beside it describes (the mean cost",
            False,
        ),
        (
            lambda g: shutil.copy(g.parent / "other" / "metrics.parquet", g),
            "seed 1 ends after 39,000 steps, not 40,000",
            False,
        ),
        (
            lambda g: shutil.copytree(g.parent / "one", g, dirs_exist_ok=True),
            "is not the group of two (its algorithm is canary, not cpo)",
            False,
        ),
        (
            lambda g: pl.read_parquet(g / "metrics.parquet")
            .with_columns(pl.col("steps").cast(pl.String))
            .write_parquet(g / "metrics.parquet"),
            "its column 'steps' does not hold whole numbers",
            False,
        ),
    ],
)  # fmt: skip
def test_what_is_missing_or_foreign_is_named_for_what_it_is(results, harm, words, is_shown):
    tiny = results / "tiny"
    change(tiny / "study.json", "rows.1.algorithm", "cpo")
    (tiny / "other").mkdir()
    episodes = pl.read_parquet(tiny / "two" / "episodes.parquet")
    episodes.with_columns(pl.col("cost") + 1).write_parquet(tiny / "other" / "episodes.parquet")
    metrics = pl.read_parquet(tiny / "two" / "metrics.parquet")
    metrics.filter(pl.col("iteration") < 39).write_parquet(tiny / "other" / "metrics.parquet")
    harm(tiny / "two")
    change(tiny / "study.json", "view", "training-curves")
    text = save_views(tiny)["table"].read_text()
    assert words in text
    assert "being extended" not in text
    assert str(tiny / "two") in text
    assert ("cpo (fast)" in text) == is_shown


def test_a_row_that_was_never_trained_is_no_damage(results):
    shutil.rmtree(results / "tiny" / "two")
    change(results / "tiny" / "study.json", "rows.1.trained", False)
    assert "two" not in save_views(results / "tiny")["table"].read_text()
    assert damage(results / "tiny" / "two") is None


def test_a_broken_study_does_not_keep_the_others_from_being_rebuilt(results, capsys):
    for name in ("aaa", "bbb"):
        shutil.copytree(results / "tiny", results / name)
    change(results / "aaa" / "study.json", "rows.0.paper", ABSENT)
    change(results / "bbb" / "study.json", "title", ABSENT)
    assert main(["reproduce", "--rebuild", "--quiet", "--results", str(results)]) == 2
    said = capsys.readouterr()
    assert str(results / "tiny" / "table.md") in said.out
    for name in ("aaa", "bbb"):
        assert str(results / name / "study.json") in said.err


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_names_what_is_kept_and_not_shown(results, view):
    """Also of a study that shows the units of another; there only groups of its own variants."""
    tiny = results / "tiny"
    for name in ("one-0123abcd", "earlier"):
        shutil.copytree(tiny / "one", tiny / name)
    change(tiny / "study.json", "view", view)
    text = save_views(tiny)["table"].read_text()
    assert "Kept in the store, with other settings or by another version: `earlier`, `one-" in text
    add_study(results / "seen", {"one": "../tiny/one"}, view=view, paper=None)
    text = save_views(results / "seen")["table"].read_text()
    assert "by another version: `one-0123abcd`." in text


def test_a_row_shows_the_seeds_that_were_asked_for(results):
    study = results / "tiny" / "study.json"
    change(study, "rows.0.seeds", [2, 3])
    change(study, "rows.1.seeds", [7])
    paths = save_views(results / "tiny")
    data = pl.read_csv(paths["data"])
    summary = json.loads((results / "tiny" / "one" / "summary.json").read_text())
    assert data["variant"].to_list() == ["one"]
    assert data["seed_ids"].cast(str).to_list() == ["2"]
    assert data["violation"][0] == pytest.approx(summary["violation_per_seed"][1])
    assert data["reward"][0] == pytest.approx(summary["return_per_seed"][1])
    assert data["final_violation"][0] == pytest.approx(0.02)
    text = paths["table"].read_text()
    assert f"{results / 'tiny' / 'one'} holds 1 other seed, which" in text
    assert f"{results / 'tiny' / 'two'} holds none of the seeds that were asked for, and" in text
    subjects, _ = study_subjects(results / "tiny", lambda run, config: None)
    assert [policy["seed"] for policy in subjects[0]["frontier"]["policies"]] == [2]
