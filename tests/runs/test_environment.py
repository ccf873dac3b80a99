"""Runs on one's own code: made again after consent, only as the environment of training."""

import io
import shutil
from dataclasses import dataclass

import pytest
from rich.console import Console

import canary
from canary.certification.verify import verify_file
from canary.config.sources import Source, build, source_of
from canary.environments import from_gymnasium
from canary.errors import CanaryError
from canary.runs import directory, environment
from canary.runs.directory import read_config
from canary.runs.environment import open_config
from canary.terminal.certificate_table import print_certificate
from problems import faulty_environments as problems
from problems.faulty_environments import Walk
from problems.host_environments import WALK
from problems.host_environments import Walk as HostWalk
from tiny_runs import TINY

REFERENCE = "problems.faulty_environments:Walk"
SETTINGS = TINY | {"training.environments": 3, "training.rollout_length": 10}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained by a reference and an argument."""
    return canary.train(
        REFERENCE, "ppo", canary.Chance(limit=9.0, epsilon=0.2), seeds=1, total_steps=90,
        out=tmp_path_factory.mktemp("runs"), overrides=SETTINGS | {"env.noise": 0.25}, quiet=True,
        final_check=False,
    )  # fmt: skip


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """Somebody who has trusted nothing yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(environment, "_agreed", set())


def test_a_run_stores_what_it_was_trained_on(run):
    stored = read_config(run.directory)["environment"]
    assert stored["name"] == "Walk"
    assert stored["settings"] == {"horizon": 12, "noise": 0.25, "fault": ""}
    assert stored["source"] == {"name": REFERENCE, "arguments": stored["settings"], "cost": None}
    assert len(stored["behaviour"]["cost"]) == 13
    again = canary.load(run.directory)  # trained here: no question
    assert again.config.environment == Walk(noise=0.25)
    assert again.config.environment_changes == ()


@pytest.mark.usefixtures("stranger")
def test_a_run_of_somebody_else_is_opened_only_after_consent(run):
    with pytest.raises(CanaryError, match=r"faulty_environments:Walk\(.*noise=0.25.*--trust"):
        canary.load(run.directory)
    # Its own object: no import
    assert canary.load(run.directory, Walk(noise=0.25)).config.environment.noise == 0.25
    with pytest.raises(CanaryError):
        canary.load(run.directory)
    canary.load(run.directory, trust=True)
    canary.load(run.directory)  # once is enough


@pytest.mark.usefixtures("stranger")
def test_consent_is_for_this_code_with_these_arguments(run, tmp_path):
    config = read_config(run.directory)
    mark = tmp_path / "mark"
    config["environment"]["source"] = {
        "name": "os:system",
        "arguments": {"command": f"touch {mark}"},
        "cost": None,
    }
    evil = directory.create(tmp_path, config, 10)
    with pytest.raises(CanaryError, match="os:system"):
        open_config(evil)
    assert not mark.exists()


CHANGE = "noise is 0.0 here and was 0.25"


def test_an_accepted_change_is_shown_wherever_a_certificate_is(run, tmp_path):
    place, other = tmp_path / "run", Walk(noise=0.0)
    shutil.copytree(run.directory, place)
    own = canary.load(place, Walk(noise=0.25)).certify(episodes=60)
    assert "environment_changes" not in own["origin"]
    certificate = canary.load(place, other, accept_change=True).certify(episodes=60)
    assert certificate["origin"]["environment_changes"] == [CHANGE]
    assert certificate["sentence"].endswith(f"not the environment of training: {CHANGE}.")
    page = (place / "certificate.html").read_text().partition("<script")[0]
    assert page.count(CHANGE) == 2  # the sentence, and the facts
    assert "in a changed environment" in page
    lines = Console(width=200, record=True, file=io.StringIO())
    print_certificate(lines, certificate)
    assert "in an environment that changed since training" in lines.export_text()
    assert verify_file(place, run=place, environment=other)["level"] == "replayed"
    found = verify_file(place, run=place, environment=Walk(noise=0.25))
    assert found["level"] == "nothing"


def test_a_changed_environment_is_evaluated_but_neither_trained_on_nor_exported(run):
    """Training on would leave a policy of two environments that names only one of them."""
    with pytest.raises(CanaryError, match=f"was trained on: {CHANGE}.*accept_change"):
        canary.load(run.directory, Walk(noise=0.0))
    accepted = canary.load(run.directory, Walk(noise=0.0), accept_change=True)
    assert accepted.config.environment_changes == (CHANGE,)
    files = {path: path.read_bytes() for path in run.directory.iterdir() if path.is_file()}
    uses = (lambda: accepted.resume(total_steps=120, quiet=True), lambda: accepted.export("numpy"))
    for use in uses:
        with pytest.raises(CanaryError, match=f"{CHANGE}. Restore it"):
            use()
    assert {path: path.read_bytes() for path in files} == files
    assert accepted.evaluate(20)["environment_changes"] == [CHANGE]
    assert "environment_changes" not in canary.evaluate(run.directory, 20)


def test_other_behaviour_is_refused_although_the_settings_agree(run):
    @dataclass(frozen=True, kw_only=True)
    class Changed(problems.Walk):
        def step(self, state, action, key):
            return super().step(state, 1.5 * action, key)

    Changed.__name__ = "Walk"
    Changed.__qualname__, Changed.__module__ = "Walk", problems.__name__
    with pytest.raises(CanaryError, match="on the same keys the observation differs from step 1"):
        canary.load(run.directory, Changed(noise=0.25))


def test_references_make_environments():
    walk = build(Source(REFERENCE, {"noise": 1, "horizon": 7}))
    assert walk == Walk(noise=1.0, horizon=7)
    assert isinstance(walk.noise, float)
    assert source_of(walk) == Source(REFERENCE, {"horizon": 7, "noise": 1.0, "fault": ""})
    host = build(Source(f"gymnasium:{WALK}", {"horizon": 9, "drift": 0.25}, "info:cost"))
    assert host.settings() == {"drift": 0.25, "horizon": 9, "cost": "info:cost"}
    assert source_of(host) == Source(
        f"gymnasium:{WALK}", {"drift": 0.25, "horizon": 9}, "info:cost"
    )
    assert source_of(from_gymnasium(lambda: HostWalk(), horizon=9)) is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Source("problems.faulty_environments:Wolk"), "has no 'Wolk'"),
        (Source("problems.host_environments:Walk"), "write --env gymnasium:problems.host"),
        (Source(REFERENCE, {}, "info:cost"), "states its own cost; --cost is for"),
        (Source("gymnasium:Nothing-v3"), "Gymnasium knows no environment 'Nothing-v3'"),
    ],
)
def test_references_that_make_none(source, words):
    with pytest.raises(CanaryError, match=words):
        build(source)
