"""A certificate is issued again, from its costs and from its episodes: what was edited shows."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from canary.certification.certificate import Result, decode_costs, judge
from canary.certification.plan import Plan
from canary.certification.run import certify_run
from canary.certification.verify import verify, verify_file
from canary.cli.main import main
from canary.constraints import Chance, Mean
from canary.errors import CanaryError
from canary.runs.environment import open_config
from canary.runs.files import write_json
from canary.runs.policies import load_policies
from runs.untrained_runs import untrained_run


def edited(certificate: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(certificate)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def invented(certificate: dict[str, Any], costs: str, plan: Plan) -> dict[str, Any]:
    """A certificate with other costs and all that follows from them."""
    chance = Chance(limit=certificate["limit"], epsilon=certificate["epsilon"])
    names = "seed", "changes", "policy_sha256", "return_mean", "length_mean"
    about = {name: certificate["results"][0][name] for name in names}
    result = Result(costs=decode_costs(costs), plan=plan, constraint=chance, **about)
    return certificate | judge([result], plan, chance)


def test_it_is_consistent_and_replayed(run: Path, certificate: dict, tmp_path: Path):
    found = verify_file(run, run=run)
    assert (found["valid"], found["level"], found["problems"]) == (True, "replayed", [])
    elsewhere = tmp_path / "mine.json"
    elsewhere.write_text(json.dumps(certificate))
    assert verify_file(elsewhere)["level"] == "consistent"


RESULT = ("results", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*RESULT, "costs"), "150x0"),
        ((*RESULT, "upper"), 0.001),
        ((*RESULT, "promise"), 1),
        (("sentence",), "All is well."),
        (("plan", "confidence"), 0.99),
        (("limit",), 9.5),
        (("plan", "statements"), 1),
    ],
)
def test_what_does_not_follow_from_the_costs_is_found(certificate, path, value):
    assert verify(certificate) == []
    assert verify(edited(certificate, path, value))


def test_what_is_no_certificate_is_a_sentence(certificate: dict, tmp_path: Path):
    for path in (("results",), (*RESULT, "costs"), ("plan",)):
        for nonsense in (None, 3, "x", {}, "999999999999999x0"):
            assert verify(edited(certificate, path, nonsense))
    path = tmp_path / "certificate.json"
    for text in ("", "{}", json.dumps(certificate)[:-40], json.dumps({"format": 4})):
        path.write_text(text)
        with pytest.raises(CanaryError, match="no certificate"):
            verify_file(path)
    assert main(["certify", "--verify", str(path)]) == 2


def test_forgeries_are_found_by_replaying(run: Path, quick: dict, tmp_path: Path):
    """Other runs, plans and seeds, and invented costs: each is consistent."""
    plan = Plan(episodes=150, batch=50, early_stop=False)
    honest = certify_run(run, **quick | {"plan": plan}, seeds=(0,), out=tmp_path)
    forgeries = {
        "costs": honest | {"evaluation_seed": 12},
        "0.costs": edited(honest, ("plan", "deterministic"), True),
        "results": invented(honest, "150x0", Plan(**honest["plan"])),
        "settings.slip": edited(honest, ("settings", "slip"), 0.2),
        "origin.updates": edited(honest, ("origin", "updates"), 9),
        "policy_sha256": edited(honest, (*RESULT, "policy_sha256"), "0" * 64),
    }
    for place, forged in forgeries.items():
        write_json(tmp_path / "certificate.json", forged)
        assert verify_file(tmp_path)["valid"]
        found = verify_file(tmp_path, run=run)
        assert found["level"] == "nothing"
        assert any(place in problem for problem in found["problems"])


def test_more_episodes_than_planned_are_refused(certificate: dict):
    forged = edited(invented(certificate, "200x0", Plan(episodes=200)), ("plan", "episodes"), 150)
    assert "200 episodes are more than the 150" in verify(forged)[0]


def test_a_certificate_about_a_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = untrained_run(tmp_path, algorithm="ppo-lagrangian", constraint=Mean(limit=5.0))
    file = str(tmp_path / "c.json")
    certify = ["certify", str(run), "--episodes", "300", "--seed", "4", "--json", file]
    assert main(certify) == 0
    shown = capsys.readouterr().out
    assert "all 2 seeds stay within mean cost <= 5." in shown
    assert "violations" not in shown  # one costly episode violates no mean
    assert main(["certify", str(run), "--verify", str(run)]) == 0
    assert "was replayed" in capsys.readouterr().out
    certificate = json.loads(Path(file).read_text())
    assert [certificate[name] for name in ("constraint", "limit", "epsilon")] == ["mean", 5.0, 1.0]
    for changes in ({"limit": 6.0}, {"epsilon": 0.5}, {"constraint": "median"}):
        assert verify(certificate | changes)
    with pytest.raises(CanaryError, match="has no epsilon"):
        certify_run(run, epsilon=0.1, quiet=True)


ROOT = Path(__file__).parents[2]


def test_the_committed_certificate_is_about_the_policies_beside_it():
    run = ROOT / "results" / "icy-lake-canary"
    found = verify_file(run)
    assert (found["valid"], found["level"]) == (True, "consistent")
    policies = load_policies(open_config(run), run)
    for result in json.loads((run / "certificate.json").read_text())["results"]:
        assert result["policy_sha256"] == policies.trained(result["seed"]).sha256
