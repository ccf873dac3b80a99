"""A study trains what is missing, keeps what its table needs, and makes table and figure from that alone."""

import json

import numpy as np
import polars as pl
import pytest
from PIL import Image

from canary.cli import main
from canary.errors import CanaryError
from canary.experiments.config import config_to_dict
from canary.experiments.studies import STUDIES, PaperRow, Study, Variant
from canary.reporting.study import save_study
from canary.reproduction import Places, configuration, reproduce
from problems.compilation import quick_compilation

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


@pytest.fixture(scope="module", autouse=True)
def quick():
    with quick_compilation():
        yield


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    return Places(runs=root / "runs", results=root / "results")


@pytest.fixture(scope="module")
def written(places):
    return reproduce("small", STUDY, places, quiet=True)


def test_the_table_has_a_row_per_variant(written, places):
    text = written["table"].read_text()
    assert "canary reproduce small" in text
    assert "seeds 5-6, 1,000 steps" in text
    rows = [line for line in text.splitlines() if line.startswith(("| plain", "| other"))]
    assert len(rows) == 2
    assert "0.300, 0.0200, 0%, 1.00" in rows[0]
    data = pl.read_csv(written["data"])
    summary = json.loads((places.results / "small" / "plain" / "summary.json").read_text())
    assert data["violation"][0] == pytest.approx(summary["violation_probability"])
    assert data["exact_largest_violation"][0] >= data["exact_violation"][0] > 0
    per_seed = [
        json.loads((places.results / "small" / name / "summary.json").read_text())["return_per_seed"]
        for name in ("plain", "other")
    ]
    assert data["reward_difference"][0] is None
    assert data["reward_difference"][1] == pytest.approx(np.mean(per_seed[1]) - np.mean(per_seed[0]))
    with Image.open(written["figure"]) as figure:
        assert figure.size[0] > 500


def test_results_name_no_place_on_this_machine(written, places):
    for path in (places.results / "small").rglob("*.*"):
        if path.suffix in (".json", ".md", ".csv"):
            assert str(places.results.parent) not in path.read_text()


def test_nothing_is_trained_twice(written, places):
    before = {path: path.stat().st_mtime_ns for path in places.results.rglob("summary.json")}
    reproduce("small", STUDY, places, quiet=True)
    assert {path: path.stat().st_mtime_ns for path in places.results.rglob("summary.json")} == before


def test_the_table_needs_the_results_alone(written, places):
    text = written["table"].read_text()
    written["table"].unlink()
    save_study(STUDY, places.results / "small")
    assert written["table"].read_text() == text


def test_an_unknown_variant_is_a_sentence(places):
    with pytest.raises(CanaryError, match="no variant 'plane'; did you mean plain"):
        reproduce("small", STUDY, places, only=("plane",), quiet=True)


def test_every_study_can_be_configured_and_differs_from_its_neighbours():
    for study in STUDIES.values():
        configs = [json.dumps(config_to_dict(configuration(variant, study))) for variant in study.variants]
        assert len(set(configs)) == len(configs)
        assert not {*study.seeds} & {*range(100, 108)}, "settings were chosen on these seeds"


def test_the_command_lists_studies_and_names_the_nearest(capsys):
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out.count("\n") == len(STUDIES)
    assert main(["reproduce", "method"]) == 2
    assert "did you mean methods" in capsys.readouterr().err
