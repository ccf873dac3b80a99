"""The command line as people and scripts meet it: sentences for mistakes, pure JSON, stop and
resume."""

import io
import json
import os
import pickle
import signal
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from canary.cli.common import parse_seeds
from canary.cli.main import COMMANDS, main
from canary.runs import checkpoint, directory, runner, seeds
from canary.runs.files import unsealed
from tiny_runs import FLAGS, STEPS, command, environment, run_canary

KEYS = {
    "env",
    "algorithm",
    "limit",
    "epsilon",
    "seeds",
    "total_steps",
    "violation_probability",
    "violation_jitter",
    "safe_fraction",
    "return_mean",
    "return_per_seed",
    "violation_per_seed",
    "steps_per_second",
    "run_dir",
    "seed_ids",
    "episodes_per_seed",
    "jitter_per_seed",
    "cost_mean",
    "cost_deviation",
    "wall_seconds",
    "preset",
}


def assert_one_sentence(text: str) -> None:
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert lines[0][-1] in ".?", text
    assert "Traceback" not in text
    assert "Error(" not in text


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """An uninterrupted run of two seeds, made by the command with its JSON on standard output."""
    out = tmp_path_factory.mktemp("cli") / "runs"
    done = run_canary("train", *FLAGS, "--seeds", "0,3", "--out", str(out), "--json", "-")
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["run_dir"]), done


# ---- what needs no training ----


def test_help_version_and_list_are_quick_and_light(tmp_path: Path):
    code = (
        "import sys; from canary.cli import main\n"
        "for arguments in (['--help'], ['train', '--help'], ['--version'], ['list', '--out', "
        "sys.argv[1]]):\n"
        "    assert main(arguments) == 0\n"
        "heavy = {'jax', 'polars', 'numpy', 'scipy', 'equinox'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    program = [command()[0], "-c", code, str(tmp_path)]
    began = time.process_time(), os.times().children_user
    done = subprocess.run(program, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # All four together; a start of JAX alone takes as much
    assert os.times().children_user - began[1] < 3.0
    for flag in (
        "env",
        "algo",
        "limit",
        "epsilon",
        "seeds",
        "total-steps",
        "preset",
        "set",
        "out",
        "json",
        "resume",
    ):
        assert f"--{flag} " in done.stdout
    assert "canary train --resume latest" in done.stdout


def test_no_command_shows_the_commands(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name}" in shown for name in COMMANDS)


MISTAKES = {
    "unknown command": ["trian"],
    "unknown flag": ["train", "--envv", "IcyLake"],
    "stray word": ["train", "IcyLake"],
    "flag without value": ["train", "--limit"],
    "env": ["train", "--env", "IceLake"],
    "algo": ["train", "--algo", "canari"],
    "limit no number": ["train", "--limit", "high"],
    "limit negative": ["train", "--limit", "-5"],
    "limit zero": ["train", "--limit", "0"],
    "limit infinite": ["train", "--limit", "Infinity"],
    "limit nan": ["train", "--limit", "nan"],
    "epsilon no number": ["train", "--epsilon", "small"],
    "epsilon 0": ["train", "--epsilon", "0"],
    "epsilon 1": ["train", "--epsilon", "1"],
    "epsilon nan": ["train", "--epsilon", "NaN"],
    "seeds 0": ["train", "--seeds", "0"],
    "seeds negative": ["train", "--seeds", "-3"],
    "seeds word": ["train", "--seeds", "many"],
    "seeds twice": ["train", "--seeds", "1,1"],
    "seeds backwards": ["train", "--seeds", "9-0"],
    "seeds huge": ["train", "--seeds", "99999999999"],
    "seeds huge range": ["train", "--seeds", "0-99999999999"],
    "steps word": ["train", "--total-steps", "lots"],
    "steps 0": ["train", "--total-steps", "0"],
    "steps half": ["train", "--total-steps", "1000.5"],
    "steps infinite": ["train", "--total-steps", "Infinity"],
    "steps too few": ["train", "--total-steps", "10"],
    "preset": ["train", "--preset", "quick"],
    "set without value": ["train", "--set", "algo.dead_zone"],
    "set unknown section": ["train", "--set", "algos.dead_zone=1"],
    "set unknown name": ["train", "--set", "algo.dead_zon=1"],
    "set group": ["train", "--set", "algo.clipped=1"],
    "set too deep": ["train", "--set", "algo.dead_zone.x=1"],
    "set wrong type": ["train", "--set", "algo.dead_zone=[1]"],
    "set no list": ["train", "--set", "algo.hidden=256"],
    "no epochs": ["train", "--set", "algo.epochs=0"],
    "more minibatches than steps": ["train", "--algo", "cpo", "--set", "algo.minibatches=5000"],
    "negative width": ["train", "--set", "algo.hidden=[-3]"],
    "endless width": ["train", "--set", "algo.hidden=[8,1e12]"],
    "negative clip": ["train", "--set", "algo.ratio_clip=-1"],
    "cost discount": ["train", "--set", "algo.cost_discount=1.5"],
    "gae lambda": ["train", "--set", "algo.gae_lambda=7"],
    "endless horizon": ["train", "--set", "env.horizon=1e30"],
    "broken map": ["train", "--set", "env.map=SFX/GGG"],
    "uneven map": ["train", "--set", "env.map=SFF/G"],
    "map without goal": ["train", "--set", "env.map=SF"],
    "slip": ["train", "--set", "env.slip=0.7"],
    "environments": ["train", "--set", "training.environments=0"],
    "empty json": ["train", "--json", ""],
    "resume nothing": ["train", "--resume", "nothing"],
    "resume with flags": ["train", "--resume", "latest", "--env", "IcyLake"],
    "resume with settings": ["train", "--resume", "latest", "--set", "algo.dead_zone=0.1"],
    "evaluate nothing": ["evaluate", "nothing"],
    "evaluate no runs": ["evaluate"],
    "evaluate episodes": ["evaluate", "--episodes", "few"],
    "evaluate seed": ["evaluate", "--seed", "-1"],
    "list unknown flag": ["list", "--jsn", "-"],
}


@pytest.mark.parametrize("arguments", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert_one_sentence(shown.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["file/summary.json", "missing/summary.json", "."])
def test_json_must_be_writable_before_anything_is_trained(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for name in ("train", "evaluate", "list"):
        assert main([name, "--json", target]) == 2
        shown = capsys.readouterr()
        assert_one_sentence(shown.err)
        assert "--json" in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_device_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["list", "--out", str(tmp_path), "--json", "/dev/full"]) == 2
    assert_one_sentence(capsys.readouterr().err)
    assert not Path("/dev/full").is_file()


def test_runs_cannot_be_put_below_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").touch()
    assert main(["train", *FLAGS, "--out", str(tmp_path / "file" / "runs")]) == 2
    shown = capsys.readouterr()
    assert_one_sentence(shown.err)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_during_the_first_save_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(
        checkpoint, "save", lambda path, *a, **k: directory.write_json(Path("/dev/full/x"), {})
    )
    assert main(["train", *FLAGS, "--quiet", "--out", str(tmp_path / "runs")]) == 2
    assert_one_sentence(capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("4", 4),
        ("3,5,7", (3, 5, 7)),
        ("0-3", (0, 1, 2, 3)),
        ("7-7", (7,)),
        ("7,", (7,)),
        ("0-1,9", (0, 1, 9)),
    ],
)
def test_seeds_are_a_number_or_a_list(text: str, seeds: Any):
    assert parse_seeds(text) == seeds


# ---- one run, looked at from all sides ----


def test_the_json_is_the_only_thing_on_standard_output(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
):
    run, done = trained
    summary = json.loads(done.stdout)
    assert summary.keys() >= KEYS
    assert summary == unsealed(json.loads((run / "summary.json").read_text()), run)
    assert (summary["seeds"], summary["seed_ids"], summary["total_steps"]) == (2, [0, 3], STEPS)
    assert (summary["status"], summary["env"], summary["algorithm"]) == (
        "finished",
        "IcyLake",
        "canary",
    )
    assert "P(cost > 5.5)" in done.stderr
    assert "guarantee" in done.stderr
    assert f"{run}/summary.json" in done.stderr
    for chatter in ("WARNING", "Warning", "xla", "jax"):
        assert chatter not in done.stderr


def test_list_shows_the_run(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("COLUMNS", "110")  # a narrow terminal folds the names
    run, _ = trained
    assert main(["list", "--out", str(run.parent)]) == 0
    shown = capsys.readouterr().out
    assert run.name in shown
    assert "finished" in shown
    assert main(["list", "--out", str(run.parent), "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["runs"][0]["path"] == str(run)
    assert listed["runs"][0]["violation_probability"] is not None
    assert "canary" in listed["algorithms"]


def test_a_finished_run_is_not_trained_again(
    trained: tuple[Path, subprocess.CompletedProcess[str]], capsys: pytest.CaptureFixture[str]
):
    run, done = trained
    assert main(["train", "--resume", "latest", "--out", str(run.parent), "--json", "-"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == json.loads(done.stdout)
    assert "finished already" in shown.err
    assert main(["train", "--resume", run.name, "--out", str(run.parent), "--quiet"]) == 0
    assert capsys.readouterr().out == f"{run}\n"


def test_evaluate_prints_a_table_and_stable_json(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    run, _ = trained
    target = tmp_path / "evaluation.json"
    arguments = ["evaluate", str(run), "--episodes", "30", "--seeds", "3-3", "--json"]
    assert main([*arguments, str(target)]) == 0
    shown = capsys.readouterr().out
    assert "30 fresh episodes per seed" in shown
    assert "95% interval" in shown
    summary = json.loads(target.read_text())
    assert summary.keys() >= KEYS
    assert (summary["episodes_per_seed"], summary["violation_jitter"], summary["seed_ids"]) == (
        [30],
        None,
        [3],
    )
    assert main([*arguments, "-"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["cost_per_seed"] == summary["cost_per_seed"]
    assert main(["evaluate", str(run), "--seeds", "8,9"]) == 2
    assert "it has 0, 3" in capsys.readouterr().err


def copy_of(run: Path, place: Path) -> Path:
    target = place / run.name
    for file in run.rglob("*"):
        if file.is_file():
            copy = target / file.relative_to(run)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    return target


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"{}"),
        ("config.json", b'{"environment": 3, "algorithm": "x"}'),
        (
            "config.json",
            b'{"environment": {"name": [], "settings": {}}, "algorithm": {"name": 2, "settings": '
            b"{}}}",
        ),
        ("manifest.json", b"{}"),
        ("manifest.json", b"\xff\x00"),
    ],
)
def test_a_corrupt_run_is_a_sentence(
    file: str,
    content: bytes,
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    run = copy_of(trained[0], tmp_path)
    (run / file).write_bytes(content)
    assert main(["train", "--resume", str(run)]) == 2
    assert_one_sentence(capsys.readouterr().err)


def test_wrong_settings_in_a_config_are_named(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    run = copy_of(trained[0], tmp_path)
    original = json.loads((run / "config.json").read_text())
    for section, value in {
        "constraint": {"limit": 5.5},
        "training": [1],
        "environment": {"name": "IcyLake"},
    }.items():
        (run / "config.json").write_text(json.dumps(original | {section: value}))
        assert main(["evaluate", str(run)]) == 2
        assert_one_sentence(capsys.readouterr().err)


class Hostile:
    """Unpickling this would create a file."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


def test_a_hostile_checkpoint_is_refused_and_runs_nothing(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    run = copy_of(trained[0], tmp_path)
    mark = tmp_path / "executed"
    objects = io.BytesIO()
    np.save(objects, np.array([Hostile(mark)], dtype=object), allow_pickle=True)
    for path in checkpoint.checkpoints(run / "checkpoints"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("metadata.npy", objects.getvalue())
    assert main(["evaluate", str(run)]) == 2
    assert_one_sentence(capsys.readouterr().err)
    for path in checkpoint.checkpoints(run / "checkpoints"):
        path.write_bytes(pickle.dumps(Hostile(mark)))
    assert main(["evaluate", str(run)]) == 2
    assert_one_sentence(capsys.readouterr().err)
    assert not mark.exists()


def test_ctrl_c_saves_and_resume_ends_as_if_nothing_had_happened(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """The interruption comes in the second update; the end must equal the uninterrupted run."""
    whole, _ = trained
    out = tmp_path / "runs"
    advance, calls = seeds.SeedGroups.advance, []

    def interrupted(self: seeds.SeedGroups, count: int) -> Any:
        calls.append(count)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return advance(self, count)

    monkeypatch.setattr(runner, "CHUNK_SECONDS", 0.0)  # a call of the program per update
    monkeypatch.setattr(seeds.SeedGroups, "advance", interrupted)
    assert main(["train", *FLAGS, "--seeds", "0,3", "--out", str(out), "--json", "-"]) == 130
    output, errors = capsys.readouterr()
    assert calls == [1, 1]
    summary = json.loads(output)
    run = Path(summary["run_dir"])
    assert summary["status"] == "interrupted"
    assert 0 < summary["total_steps"] < STEPS
    assert f"canary train --resume {run}" in errors.replace("\n", "")
    assert directory.list_runs(out)[0].status == "interrupted"

    assert main(["train", "--resume", "latest", "--out", str(out), "--json", "-"]) == 0
    resumed = capsys.readouterr()
    assert json.loads(resumed.out)["status"] == "finished"
    assert "Resuming" in resumed.err
    for kind in ("metrics", "episodes"):
        assert_frame_equal(directory.read(run, kind), directory.read(whole, kind), check_exact=True)
    assert isinstance(directory.read(run, "episodes"), pl.DataFrame)


def test_trained_run_is_certified_and_the_certificate_verified(
    trained: tuple[Path, subprocess.CompletedProcess[str]], capsys: pytest.CaptureFixture[str]
):
    run, _ = trained
    arguments = [
        "certify",
        str(run),
        "--seeds",
        "1",
        "--episodes",
        "300",
        "--seed",
        "5",
        "--quiet",
        "--json",
        "-",
    ]
    assert main(arguments) == 1  # hardly trained, so the limit is broken
    certificate = json.loads(capsys.readouterr().out)
    assert certificate["verdict"] == "VIOLATED"
    assert (run / "certificate.html").read_text().startswith("<!")
    file = run / "certificate.json"
    assert main(["certify", "--verify", str(file), "--quiet"]) == 0
    file.write_text(file.read_text().replace('"VIOLATED"', '"SATISFIED"'))
    assert main(["certify", "--verify", str(file)]) == 1
    assert "NOT VALID" in capsys.readouterr().out


def test_trained_run_is_exported(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    from canary.export import numpy_policy

    run, _ = trained
    file = tmp_path / "policy.npz"
    assert main(["export", str(run), "--format", "numpy", "--file", str(file), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["max_abs_difference"] < 1e-5
    episode = numpy_policy.load(str(file)).start(0)
    assert episode.act([1.0] + [0.0] * 15) in range(4)


@pytest.mark.parametrize(
    "arguments",
    [
        ["certify", "nowhere"],
        ["certify", "--confidence", "much"],
        ["certify", "--verify", "nothing.json"],
        ["export", "nowhere"],
        ["export", "--format", "papyrus"],
        ["frontier", "--epsilon", "2"],
        ["frontier", "--env", "Volcano"],
        ["frontier", "--run", "nowhere"],
        ["bench", "--seeds", "0"],
        ["bench", "--updates", "-3"],
    ],
    ids=" ".join,
)
def test_a_mistake_with_the_other_commands_is_one_sentence(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_frontier_has_its_stable_keys(capsys: pytest.CaptureFixture[str]):
    arguments = ["frontier", "--limit", "1.5", "--epsilon", "0.2", "--set", "env.map=SFF/FHG"]
    assert main([*arguments, "--set", "env.horizon=8", "--quiet", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    returns = [report[f"{kind}_optimal_return"] for kind in ("cantelli", "cvar", "var")]
    assert returns == sorted(returns)
    assert returns[-1] <= report["unconstrained_return"]
