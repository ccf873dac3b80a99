"""A sweep is a study of all combinations; it is trained, stored and shown as one."""

import polars as pl
import pytest

from canary.cli import main
from canary.errors import CanaryError
from canary.studies.plan import configuration, sweep_study, swept


def test_values_are_split_at_commas_outside_of_brackets():
    assert swept(["algo.target_kl=0.01,0.02", "algo.hidden=[64,64],[32]"]) == [
        ("algo.target_kl", ["0.01", "0.02"]),
        ("algo.hidden", ["[64,64]", "[32]"]),
    ]
    with pytest.raises(CanaryError, match="A list is written in brackets"):
        swept(["algo.hidden=64,64"])
    with pytest.raises(CanaryError, match=r"takes section.setting=value,value"):
        swept(["algo.target_kl"])
    with pytest.raises(CanaryError, match="swept twice"):
        swept(["algo.damping=1", "algo.damping=2"])


def test_every_combination_is_a_variant_named_by_what_varies():
    axes = swept(["algo.target_kl=0.01,0.02", "constraint.limit=3.5,5.5", "algo.damping=0.5"])
    study = sweep_study("IcyLake", "canary", "fast", axes, (0, 1))
    assert [variant.name for variant in study.variants] == [
        "target_kl-0.01--limit-3.5", "target_kl-0.01--limit-5.5",
        "target_kl-0.02--limit-3.5", "target_kl-0.02--limit-5.5",
    ]  # fmt: skip
    config = configuration(study.variants[1], study)
    assert (config.algorithm.trust_region.target_kl, config.constraint.limit) == (0.01, 5.5)
    assert config.algorithm.trust_region.damping == 0.5
    assert (
        config.training.total_steps
        == configuration(study.variants[0], study).training.total_steps
        > 1000
    )
    with pytest.raises(CanaryError, match="at most 1000"):
        sweep_study("IcyLake", "canary", "fast", [("a", [str(i) for i in range(1001)])], (0,))


def test_the_command_trains_all_and_shows_a_table(tmp_path, capsys):
    arguments = [
        "sweep", "--algo", "ppo", "--limit", "3.5,5.5", "--seeds", "1", "--steps", "1000", "--name", "mine", "--quiet",
        "--set", "algo.hidden=[8]", "--set", "training.environments=5", "--set", "training.rollout_length=100",
        "--set", "training.merge_capacity=0", "--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results"),
    ]  # fmt: skip
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(
        tmp_path / "results" / "mine" / "table.md"
    )
    text = (tmp_path / "results" / "mine" / "table.md").read_text()
    assert (
        "`canary sweep --algo ppo --limit 3.5,5.5 --seeds 1 --steps 1000 --name mine --set " in text
    )
    assert "canary reproduce" not in text
    assert str(tmp_path) not in text
    data = pl.read_csv(tmp_path / "results" / "mine" / "table.csv")
    assert data["variant"].to_list() == ["limit-3.5", "limit-5.5"]
    assert data["limit"].to_list() == [3.5, 5.5]
    assert data["violation"][0] >= data["violation"][1]  # the same episodes under two limits
    assert main([*arguments, "--set", "algo.hidden=[8"]) == 2


@pytest.mark.parametrize("name", ["table1", "../table1", "a/b", "..", "", "-x", ".hidden"])
def test_a_sweep_takes_over_no_study_and_stays_in_its_folder(name, tmp_path, capsys):
    places = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(["sweep", f"--name={name}", "--limit", "3.5,5.5", *places]) == 2
    message = capsys.readouterr().err
    assert ("is a study of its own" if name == "table1" else "A sweep's name has") in message
    assert not list(tmp_path.iterdir())
