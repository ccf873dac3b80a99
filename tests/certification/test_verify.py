"""A certificate is issued again, from its costs and from its episodes: what was edited shows."""

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from canary.certification.certificate import PolicyResult, content_hash, summarise
from canary.certification.plan import Plan
from canary.certification.run import CertificateRequest, certify_run
from canary.certification.verdict import PlayedEpisodes, assess
from canary.certification.verify import verify, verify_file
from canary.cli.main import main
from canary.constraints import Chance, Mean
from canary.errors import CanaryError
from canary.runs.files import write_json
from runs.untrained_runs import untrained_run


def hashed(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"sha256": content_hash(data)}


def edited(certificate: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(certificate)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def issued(certificate: dict[str, Any], evidence: PlayedEpisodes, plan: Plan) -> dict[str, Any]:
    """A certificate with other episodes and all that follows from them."""
    chance = Chance(limit=certificate["limit"], epsilon=certificate["epsilon"])
    assessment = assess(evidence, plan, chance)
    result = PolicyResult(seed=0, changes={}, evidence=evidence, assessment=assessment)
    verdict, sentence = summarise((result,), plan)
    parts = {"plan": dataclasses.asdict(plan), "results": [dataclasses.asdict(result)]}
    parts |= {"verdict": verdict, "sentence": sentence}
    return hashed(certificate | json.loads(json.dumps(parts)))


def test_it_is_consistent_belongs_and_is_replayed(run: Path, certificate: dict, tmp_path: Path):
    played = []
    found = verify_file(run, replay=True, report=lambda seed, count: played.append(count))
    assert (found["valid"], found["level"], found["problems"]) == (True, "replayed", [])
    assert sum(played) >= sum(one["assessment"]["episodes"] for one in certificate["results"])
    assert any("watched" in sentence for sentence in found["not_shown"])
    elsewhere = tmp_path / "mine.json"
    elsewhere.write_text(json.dumps(certificate))
    assert verify_file(elsewhere)["level"] == "consistent"
    assert verify_file(elsewhere, run=run)["level"] == "belongs"
    with pytest.raises(CanaryError, match="needs its run"):
        verify_file(elsewhere, replay=True)


def test_four_things_are_enough_to_replay_it_elsewhere(
    run: Path, certificate: dict, tmp_path: Path
):
    """What to commit beside a certificate, as docs/certification.md says."""
    for name in ("config.json", "manifest.json"):
        shutil.copy(run / name, tmp_path)
    shutil.copytree(run / "checkpoints", tmp_path / "checkpoints")
    write_json(tmp_path / "certificate.json", certificate)
    assert verify_file(tmp_path, replay=True)["level"] == "replayed"


def test_an_edit_without_a_new_hash_is_found(certificate: dict):
    assert verify(certificate) == []
    for path in (("limit",), ("results", 0, "evidence", "return_mean"), ("versions", "python")):
        assert "SHA-256" in verify(edited(certificate, path, 7))[0]


RESULT = ("results", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*RESULT, "evidence", "costs"), "150x0"),
        ((*RESULT, "evidence", "method"), "fixed"),
        ((*RESULT, "evidence", "interrupted"), True),
        ((*RESULT, "assessment", "violations"), 0),
        ((*RESULT, "assessment", "upper"), 0.001),
        ((*RESULT, "changes"), {"slip": 0.2}),
        (("results",), []),
        (("verdict",), "EXCELLENT"),
        (("sentence",), "All is well."),
        (("limit",), 9.5),
        (("epsilon",), 0.9),
        (("plan", "confidence"), 0.5),
        (("plan", "statements"), 1),
        (("plan", "batch"), 10),
        (("plan", "early_stop"), False),
        (("plan", "cost_bound"), 1.0),
        (("approved",), "by all"),
    ],
)
def test_what_does_not_follow_from_the_costs_is_found_with_a_new_hash(certificate, path, value):
    problems = verify(hashed(edited(certificate, path, value)))
    assert problems
    assert not any("SHA-256" in problem for problem in problems)


def test_what_is_no_certificate_is_a_sentence(certificate: dict, tmp_path: Path):
    for path in (("results",), (*RESULT, "evidence"), (*RESULT, "evidence", "costs"), ("plan",)):
        for nonsense in (None, [], 3, "x", {}, "999999999999999x0"):
            assert verify(hashed(edited(certificate, path, nonsense)))
    assert verify({})
    path = tmp_path / "certificate.json"
    for text in ("", "{}", json.dumps(certificate)[:-40], json.dumps({"format": 4})):
        path.write_text(text)
        with pytest.raises(CanaryError, match=r"no certificate|was not checked"):
            verify_file(path)
    assert main(["certify", "--verify", str(path)]) == 2


def test_another_run_is_named(run: Path, certificate: dict, tmp_path: Path):
    path, origin = tmp_path / "certificate.json", certificate["origin"]
    for changes, words in (
        ({"settings": certificate["settings"] | {"slip": 0.2}}, "settings.slip is 0.2"),
        ({"environment": "PointGoal"}, "environment is 'PointGoal'"),
        ({"cost_discount": 0.9}, "cost_discount is 0.9"),
        ({"origin": origin | {"algorithm": "ppo"}}, "origin.algorithm is 'ppo'"),
        ({"origin": origin | {"updates": 9}}, "origin.updates is 9"),
    ):
        write_json(path, hashed(certificate | changes))
        assert verify_file(path)["valid"]  # it follows from its costs
        assert any(words in problem for problem in verify_file(path, run=run)["problems"])
    digest = ("results", 0, "evidence", "policy_sha256")
    write_json(path, hashed(edited(certificate, digest, "0" * 64)))
    assert "not the certified one" in verify_file(path, run=run)["problems"][0]


def test_another_plan_or_seed_has_other_episodes(run: Path, quick: dict, tmp_path: Path):
    """A consistent certificate whose plan was changed afterwards: replaying it shows."""
    request = CertificateRequest(**quick, seeds=(0,), early_stop=False)
    honest = certify_run(run, request, out=tmp_path, quiet=True)
    (tmp_path / "certificate.html").unlink()
    for changes in (
        {"evaluation_seed": 12},
        {"plan": honest["plan"] | {"deterministic": True}},
    ):
        write_json(tmp_path / "certificate.json", hashed(honest | changes))
        assert verify_file(tmp_path, run=run)["level"] == "belongs"
        (problem,) = verify_file(tmp_path, run=run, replay=True)["problems"]
        assert "episodes had other costs" in problem


def test_invented_costs_with_all_else_recomputed_are_found_by_replaying(
    run: Path, quick: dict, tmp_path: Path
):
    request = CertificateRequest(**quick, seeds=(0,), early_stop=False)
    honest = certify_run(run, request, out=tmp_path, quiet=True)
    evidence = PlayedEpisodes(**honest["results"][0]["evidence"] | {"costs": "150x0"})
    forged = issued(honest, evidence, Plan(**honest["plan"]))
    write_json(tmp_path / "certificate.json", forged)
    assert forged["verdict"] == "SATISFIED"
    assert verify_file(tmp_path, run=run)["level"] == "belongs"
    assert not verify_file(tmp_path, run=run, replay=True)["valid"]


def test_playing_on_after_the_verdict_is_found(certificate: dict):
    """From VIOLATED until it looks better: the plan would have stopped."""
    evidence = PlayedEpisodes(
        policy_sha256="0" * 64, method="anytime", looks=30, interrupted=False,
        costs="100x6 2900x0", return_mean=0.5, length_mean=9.0,
    )  # fmt: skip
    data = issued(certificate, evidence, Plan(episodes=4000, batch=100, cost_bound=12.0))
    assert data["verdict"] == "SATISFIED"
    assert any("VIOLATED" in problem for problem in verify(data))


def test_a_changed_page_is_found(run: Path, certificate: dict, tmp_path: Path):
    page = (run / "certificate.html").read_text()
    path = tmp_path / "certificate.html"
    path.write_text(page)
    assert verify_file(path)["level"] == "consistent"
    for old, new in ((certificate["verdict"], "EXCELLENT"), ("seed 3", "seed 4"), ("95%", "99%")):
        assert old in page
        path.write_text(page.replace(old, new, 1))
        assert not verify_file(path)["valid"]
    path.write_text(page.replace('id="certificate"', 'id="other"'))
    with pytest.raises(CanaryError, match="no certificate"):
        verify_file(path)


def test_a_certificate_about_a_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = untrained_run(tmp_path, algorithm="ppo-lagrangian", constraint=Mean(limit=5.0))
    file = str(tmp_path / "c.json")
    certify = ["certify", str(run), "--episodes", "300", "--seed", "4", "--json", file]
    assert main(certify) == 0
    shown = capsys.readouterr().out
    assert "all 2 seeds stay within mean cost <= 5." in shown
    assert "violations" not in shown  # one costly episode violates no mean
    assert main(["certify", "--verify", str(run), "--replay"]) == 0
    assert "played again, had the same costs" in capsys.readouterr().out
    certificate = json.loads(Path(file).read_text())
    assert [certificate[name] for name in ("constraint", "limit", "epsilon")] == ["mean", 5.0, 1.0]
    for changes in ({"limit": 6.0}, {"epsilon": 0.5}, {"constraint": "median"}):
        assert verify(hashed(certificate | changes))
    with pytest.raises(CanaryError, match="has no epsilon"):
        certify_run(run, CertificateRequest(epsilon=0.1), quiet=True)


ROOT = Path(__file__).parents[2]


def test_the_committed_certificate_belongs_to_the_policies_beside_it():
    found = verify_file(ROOT / "results" / "icy-lake-canary")
    assert (found["valid"], found["level"]) == (True, "belongs")
