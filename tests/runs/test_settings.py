"""Which settings differ between runs; names and kept states."""

from pathlib import Path

from canary.cli import main
from canary.config.run_config import TrainingConfig
from canary.runs import directory
from canary.runs.checkpoint import is_kept, next_kept
from canary.runs.directory import update_manifest
from canary.runs.settings import differences, differing, settings_text

CONFIG = {
    "environment": {"name": "IcyLake", "settings": {"slip": 0.2}},
    "algorithm": {"name": "canary", "settings": {"target_kl": 0.01, "critic": {"epochs": 4}}},
    "constraint": {"kind": "chance", "limit": 5.5, "epsilon": 0.02},
    "training": {"seeds": [0, 1], "total_steps": 4000},
    "preset": "fast",
}
WIDE = CONFIG | {
    "algorithm": {"name": "canary", "settings": {"target_kl": 0.02, "critic": {"epochs": 4}}},
    "constraint": {"kind": "chance", "limit": 3.5, "epsilon": 0.02},
    "training": {"seeds": [0], "total_steps": 4000},
}
CPO = CONFIG | {"algorithm": {"name": "cpo", "settings": {"damping": 1.0}}}


def test_what_differs_is_named_as_set_names_it():
    one, two, none = differing([CONFIG, WIDE, None])
    assert one == {"limit": 5.5, "algo.target_kl": 0.01}
    assert settings_text(two) == "algo.target_kl=0.02 limit=3.5"
    assert none == {}
    # Settings of another algorithm are no difference: its name says it.
    assert differing([CONFIG, CPO]) == [{"algo": "canary"}, {"algo": "cpo"}]
    assert differing([CONFIG, CONFIG]) == [{}, {}]


def test_differences_have_their_place():
    assert differences(CONFIG, CONFIG) == []
    changed = CONFIG | {"constraint": {"kind": "chance", "limit": 5, "new": 1}}
    assert differences(CONFIG, changed) == [
        "constraint.limit is 5 and was 5.5",
        "constraint.epsilon is missing",
        "constraint.new is new",
    ]


def test_list_shows_names_differences_and_the_plan(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # a narrow terminal folds the differences
    for name, config in {"narrow": CONFIG, "wide": WIDE}.items():
        run = directory.create(tmp_path, config, 4000, name=name)
    longer = WIDE | {"training": {"seeds": [0], "total_steps": 8000}}
    update_manifest(run, config=longer, total_steps=8000)
    assert main(["list", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for text in ("narrow", "limit=5.5", "algo.target_kl=0.02", "limit=3.5"):
        assert text in shown
    assert "training.total_steps=8000" in shown


def test_kept_states_lie_at_equal_parts_of_training():
    training = TrainingConfig(total_steps=10_000, keep_checkpoints=4)  # ten updates
    assert [update for update in range(1, 11) if is_kept(training, update)] == [3, 5, 8, 10]
    assert [next_kept(training, update) for update in (0, 3, 9)] == [3, 5, 10]
    few = TrainingConfig(total_steps=2000, keep_checkpoints=9)
    assert [update for update in (1, 2) if is_kept(few, update)] == [1, 2]
    none = TrainingConfig(total_steps=2000)
    assert not is_kept(none, 2)
    assert next_kept(none, 0) == 2
