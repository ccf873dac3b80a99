"""The command line: sentences for mistakes, pure JSON, stop and resume."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from canary.cli import show
from canary.cli.main import BUG, main
from canary.errors import CanaryError
from canary.runs import checkpoint, directory, runner, seeds
from canary.runs.files import read_sealed, write_json, write_sealed
from canary.runs.tables import read_table
from runs.untrained_runs import untrained_run
from tiny_runs import FLAGS, STEPS, command, environment, run_canary

KEYS = {
    "env", "algorithm", "limit", "epsilon", "seed_ids", "total_steps", "violation_probability",
    "violation_per_seed", "violation_jitter", "safe_fraction", "return_mean", "return_per_seed",
    "episodes_per_seed", "cost_mean", "steps_per_second", "wall_seconds", "run_dir",
}  # fmt: skip


@pytest.fixture
def sentence(capsys, monkeypatch, tmp_path):
    """Run a command that must end in one sentence and leave nothing behind; returns the sentence."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        before = set(tmp_path.rglob("*"))
        assert main(list(arguments)) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1)
        assert shown.err.rstrip()[-1] in ".?"
        assert "Traceback" not in shown.err
        assert set(tmp_path.rglob("*")) == before
        return shown.err

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An uninterrupted run of two seeds, made by the command with its JSON on standard output."""
    out = tmp_path_factory.mktemp("cli") / "runs"
    done = run_canary("train", *FLAGS, "--seeds", "0,3", "--out", str(out), "--json", "-")
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["run_dir"]), done


# What needs no training


def test_help_version_and_list_are_quick_and_light(tmp_path):
    code = (
        "import sys; from canary.cli import main\n"
        "for arguments in (['--help'], ['train', '--help'], ['--version'], ['list', '--out', "
        "sys.argv[1]]):\n"
        "    assert main(arguments) == 0\n"
        "heavy = {'jax', 'polars', 'numpy', 'scipy', 'equinox'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    program, began = [command()[0], "-c", code, str(tmp_path)], os.times().children_user
    done = subprocess.run(program, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.times().children_user - began < 3.0  # a start of JAX alone takes as much
    for flag in ("env", "limit", "seeds", "total-steps", "set", "json", "resume", "from"):
        assert f"--{flag} " in done.stdout
    assert "canary train --resume latest" in done.stdout
    # A command's own options come before those that it shares
    assert (
        done.stdout.index("--env ") < done.stdout.index("--limit ") < done.stdout.index("--quiet ")
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trian", "did you mean train"),
        ("train --steps 1000", "did you mean --total-steps?"),
        ("train --limit", "An option needs a value"),
        ("train --limit high", "--limit must be a number"),
        ("train --constraint median", "--constraint must be one of chance, mean, cvar"),
        ("train --seeds 0-999999999", "--seeds must be a number of seeds"),
        ("train --resume nothing", "no run"),
        ("train --resume latest --env EcoAnt", "Leave out --env"),
        ("check-env", "an argument is missing"),
        ("check-env IcyLake --constraint mean --epsilon 0.1", "has no epsilon"),
        ("reproduce --rebuild --seeds 4", "Leave out --seeds"),
        ("certify --verify nothing.json", "is no certificate"),
        ("certify --verify x --sign key", "Leave out --sign"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(line, words, sentence):
    assert words in sentence(*line.split())


def test_places_that_cannot_be_written_are_sentences(tmp_path, sentence, monkeypatch, capsys):
    assert main(["list", "--out", str(tmp_path), "--json", "/dev/full"]) == 2
    assert "/dev/full is not a regular file" in capsys.readouterr().err
    (tmp_path / "file").touch()
    for place in ("file/runs", "a\0b", "x" * 300):
        assert "annot" in sentence("train", *FLAGS, "--out", place)
    # A full disk during the first save
    monkeypatch.setattr(
        checkpoint, "save", lambda path, *a, **k: write_json(Path("/dev/full/x"), {})
    )
    sentence("train", *FLAGS, "--quiet", "--out", "runs")


WALK = "problems.faulty_environments:Walk"


@pytest.mark.parametrize(
    ("line", "words"),
    [("IcyLake", "P(cost > 5.5)"), (f"{WALK} --constraint cvar --limit 15", "CVaR 5%")],
)
def test_check_env_advises_about_the_given_or_the_environments_own_constraint(line, words, capsys):
    assert main(["check-env", *line.split(), "--episodes", "8", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    (cost,) = report["costs"]
    assert words in cost["advice"]["text"]
    assert cost["policies"][0]["episodes"] == 8


def test_frontier_has_its_stable_keys(capsys):
    arguments = ["frontier", "--limit", "1.5", "--epsilon", "0.2", "--set", "env.map=SFF/FHG"]
    assert main([*arguments, "--set", "env.horizon=8", "--quiet", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    returns = [report[f"{kind}_optimal_return"] for kind in ("cantelli", "cvar", "var")]
    assert returns == sorted(returns)
    assert returns[-1] <= report["unconstrained_return"]


def test_mistakes_with_a_run_are_sentences(tmp_path_factory, sentence, monkeypatch):
    run = str(untrained_run(tmp_path_factory.mktemp("untrained")))
    assert "works only with --verify" in sentence("certify", run, "--key", "x")
    assert "Cannot write" in sentence("export", run, "--file", "x" * 300)

    def full(*_):
        raise CanaryError("Cannot write here (No space left on device); choose a place.")

    monkeypatch.setattr("canary.certification.run.files.check_writable", full)
    monkeypatch.setattr("canary.certification.run.gather", lambda *a, **k: pytest.fail("it played"))
    assert "No space left" in sentence("certify", run)


class PanicException(BaseException):
    """As polars raises it."""


def test_a_bug_shows_its_traceback_and_has_an_exit_code_of_its_own(capsys, monkeypatch):
    def broken(command):
        raise PanicException("a surprise")

    monkeypatch.setattr(show.List, "__call__", broken)
    assert main(["list"]) == BUG
    said = capsys.readouterr().err
    assert "raise PanicException(" in said
    assert said.splitlines()[-1].startswith("canary failed unexpectedly")


def test_a_damaged_summary_hides_no_run_and_is_not_shown(tmp_path, capsys):
    config = {
        "environment": {"name": "IcyLake"}, "algorithm": {"name": "canary"}, "training": {"seeds": [0]},
    }  # fmt: skip
    places = [directory.create(tmp_path, config, 10) for _ in range(3)]
    for place in places:
        write_sealed(place / "summary.json", {"return_mean": 0.25, "violation_probability": 0.5})
    places[1].joinpath("summary.json").write_text('{"return_mean": NaN}')
    changed = places[2] / "summary.json"
    changed.write_text(changed.read_text().replace("0.5", "0.1"))
    assert main(["list", "--out", str(tmp_path), "--json", "-"]) == 0
    rows = {row["path"]: row for row in json.loads(capsys.readouterr().out)["runs"]}
    assert [rows[str(place)]["violation_probability"] for place in places] == [0.5, None, None]


# One run, looked at from all sides


def test_the_json_is_the_only_thing_on_standard_output(trained):
    run, done = trained
    summary = json.loads(done.stdout)
    assert summary.keys() >= KEYS
    assert summary == read_sealed(run / "summary.json")
    assert (summary["seed_ids"], summary["total_steps"]) == ([0, 3], STEPS)
    assert (summary["status"], summary["env"], summary["algorithm"]) == ("finished", "IcyLake", "canary")  # fmt: skip
    assert all(words in done.stderr for words in ("P(cost > 5.5)", "guarantee", f"{run}/summary.json"))  # fmt: skip
    assert not any(chatter in done.stderr for chatter in ("WARNING", "Warning", "xla", "jax"))


def test_a_finished_run_is_not_trained_again(trained, capsys):
    run, done = trained
    assert main(["train", "--resume", "latest", "--out", str(run.parent), "--json", "-"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == json.loads(done.stdout)
    assert "finished already" in shown.err
    assert main(["train", "--resume", run.name, "--out", str(run.parent), "--quiet"]) == 0
    assert capsys.readouterr().out == f"{run}\n"


def test_evaluate_prints_a_table_and_stable_json(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "canary.rendering.run", None)  # no extra is needed
    run, _ = trained
    target = tmp_path / "evaluation.json"
    arguments = ["evaluate", str(run), "--episodes", "30", "--seeds", "3-3", "--json"]
    assert main([*arguments, str(target)]) == 0
    shown = capsys.readouterr().out
    assert "30 fresh episodes per seed" in shown
    assert "[95%]" in shown
    summary = json.loads(target.read_text())
    assert summary.keys() >= KEYS
    assert (summary["episodes_per_seed"], summary["seed_ids"]) == ([30], [3])
    assert main([*arguments, "-"]) == 0
    assert json.loads(capsys.readouterr().out)["cost_per_seed"] == summary["cost_per_seed"]
    for seeds_, words in (("8,9", "it has 0, 3"), ("0", "take 1 to 2"), ("9", "2 seeds")):
        assert main(["evaluate", str(run), "--seeds", seeds_]) == 2
        assert words in capsys.readouterr().err


def test_ctrl_c_saves_and_resume_ends_as_if_nothing_had_happened(
    trained, tmp_path, capsys, monkeypatch
):
    """The interruption comes in the second update; the end must equal the uninterrupted run."""
    whole, _ = trained
    out = tmp_path / "runs"
    advance, calls = seeds.SeedGroups.advance, []

    def interrupted(self, count):
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
    assert summary["status"] == directory.list_runs(out)[0]["status"] == "interrupted"
    assert 0 < summary["total_steps"] < STEPS
    assert f"canary train --resume {run}" in errors.replace("\n", "")
    assert main(["train", "--resume", "latest", "--out", str(out), "--json", "-"]) == 0
    resumed = capsys.readouterr()
    assert json.loads(resumed.out)["status"] == "finished"
    assert "Resuming" in resumed.err
    for kind in ("metrics", "episodes"):
        assert_frame_equal(read_table(run, kind), read_table(whole, kind), check_exact=True)


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_an_interruption_while_compiling(times, number, tmp_path, monkeypatch, capsys):
    def interrupt(display, text):
        for _ in range(times if text == "compiling" else 0):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(runner.TrainingProgress, "busy", interrupt)
    assert main(["train", *FLAGS, "--seeds", "1", "--out", str(tmp_path)]) == 130
    (row,) = directory.list_runs(tmp_path)
    assert (row["status"], row["steps"]) == ("interrupted", 0)
    shown = capsys.readouterr()
    assert f"Interrupted and saved; continue with: canary train --resume {row['path']}" in shown.err
    assert "Traceback" not in shown.err + shown.out
