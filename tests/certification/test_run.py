"""From a run directory to a certificate, its page and its table."""

import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

import canary
from canary.certification import run as certificates
from canary.certification.page import render_page
from canary.certification.plan import Plan
from canary.certification.run import certify_run
from canary.certification.verify import verify_file
from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.runs.files import read_json

SEEDS = (0, 3)


def test_a_run_is_certified_for_every_seed_and_shift(run: Path, certificate: dict):
    assert certificate == read_json(run / "certificate.json")
    assert [(one["seed"], one["changes"]) for one in certificate["results"]] == [
        (seed, changes) for changes in ({}, {"slip": 0.2}) for seed in SEEDS
    ]
    assert certificate["plan"]["statements"] == 4
    assert certificate["plan"]["cost_bound"] == certificate["settings"]["horizon"] == 12
    origin = {"run": run.name, "algorithm": "canary", "updates": 7, "earlier": 0}
    assert certificate["origin"] == origin
    assert {"python", "jax", "numpy", "scipy"} <= certificate["versions"].keys()
    assert len({one["policy_sha256"] for one in certificate["results"]}) == len(SEEDS)
    assert len({one["costs"] for one in certificate["results"]}) == 4


def test_a_second_certification_keeps_the_first(run: Path, certificate: dict, tmp_path: Path):
    folder = shutil.copytree(run, tmp_path / "copy")
    for count in (1, 2):
        again = certify_run(run, Plan(episodes=50), seeds=(3,), out=folder, quiet=True)
        assert again["origin"]["earlier"] == count
    assert len(list(folder.glob("certificate-*.html"))) == 2
    kept = [read_json(path) for path in folder.glob("certificate-*.json")]
    assert len(kept) == 2
    assert certificate in kept
    assert read_json(folder / "certificate.json") == again
    assert len({one["evaluation_seed"] for one in (*kept, again)}) == 3


def test_another_limit_and_a_fixed_plan(run: Path, quick: dict, tmp_path: Path):
    plan = Plan(episodes=120, batch=50, early_stop=False)
    certificate = certify_run(
        run, **quick | {"plan": plan}, seeds=(0,), limit=11.5, epsilon=0.05, out=tmp_path
    )
    (result,) = certificate["results"]
    told = [certificate[name] for name in ("limit", "epsilon", "verdict")]
    assert told == [11.5, 0.05, "SATISFIED"]
    assert result["episodes"] == 120
    assert result["upper"] == pytest.approx(1 - 0.05 ** (1 / 120))
    assert verify_file(tmp_path / "certificate.json", run=run)["level"] == "replayed"


def test_an_interruption_leaves_a_valid_certificate(run, quick, tmp_path, monkeypatch):
    def show(done: int, total: int, what: str) -> None:
        if what.startswith("seed 3"):
            raise KeyboardInterrupt

    monkeypatch.setattr(certificates, "counting_bar", lambda *_, **__: nullcontext(show))
    hard = {"shift": "slip=0.2", "epsilon": 0.3, "out": tmp_path}
    plan = Plan(episodes=150, batch=50, confidence=0.9999)
    certificate = certify_run(run, **quick | {"plan": plan}, **hard)
    assert [one["episodes"] for one in certificate["results"]][1:] == [50, 0, 0]
    assert certificate["results"][2]["verdict"] == "UNDECIDED"
    monkeypatch.undo()
    assert verify_file(tmp_path, run=run)["level"] == "replayed"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seeds": [0, 0]}, "different seeds"),
        ({"shift": "slope=0.1"}, "no numeric setting 'slope' to shift; did you mean slip"),
        ({"shift": "horizon=99999999999"}, "must be at most"),
        ({"confidence": 1.5}, "confidence must lie strictly"),
        ({"largest_step_cost": 0.01}, "states that a step costs at most"),
        ({"sign": 3}, "no Ed25519 private key"),
        ({"sign": "no-such-key"}, "There is no key"),
    ],
)
def test_mistakes_are_sentences_before_any_episode(run, wrong, words, monkeypatch):
    monkeypatch.setattr(certificates, "gather", lambda *_, **__: pytest.fail("it played"))
    before = sorted(run.iterdir())
    with pytest.raises(CanaryError, match=re.escape(words)):
        canary.certify(run, **wrong)
    assert sorted(run.iterdir()) == before


def test_shifts_form_a_grid():
    rows, longest = certificates.shifted(IcyLake(horizon=30), ("slip=0.1,0.2", "horizon=20,40"))
    assert rows[:3] == [{}, {"slip": 0.1, "horizon": 20}, {"slip": 0.1, "horizon": 40}]
    assert (len(rows), longest) == (5, 40)


def test_the_page_is_whole_and_self_contained(run: Path, certificate: dict):
    page = render_page(certificate)
    text = " ".join(page.split())
    assert not any(word in page for word in ("http", "src=", "href="))
    assert certificate["verdict"] in text
    assert "seed 3, slip = 0.2" in text
    assert "behaves differently when it is watched" in text
    assert page.count('class="SATISFIED dot"') + page.count('class="VIOLATED dot"') == 4
    hostile = certificate | {"sentence": "<script>alert(1)</script>"}
    assert "<script>" not in render_page(hostile)
