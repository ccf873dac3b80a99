"""From a run directory to a certificate, its page and its check; what was edited afterwards is
found out."""

import dataclasses
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from rich.console import Console

from canary.certification import run as certificates
from canary.certification.certificate import Result, content_hash, summarise
from canary.certification.check import verify_file
from canary.certification.page import histogram, render_page
from canary.certification.plan import Plan
from canary.certification.run import Request, certify_run
from canary.certification.verdict import Evidence, assess
from canary.config.config import RunConfig, config_from_dict, config_to_dict, make_config
from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.runs import checkpoint, directory
from canary.runs.seeds import SeedGroups, make_trainer
from canary.runs.stored_states import load_states
from canary.terminal.certificate_table import CertificationBar, print_certificate
from canary.types import Chance
from problems.terms import terms_of

SEEDS = (0, 3)
QUICK = Request(episodes=150, batch=50, evaluation_seed=11)


def bound(config: RunConfig, iteration: int) -> dict:
    """The metadata of a checkpoint of this configuration."""
    return {"iteration": iteration, "config": config_to_dict(config)}


def write_run(root: Path) -> Path:
    """A run that stopped before its first update: the policies are untrained networks."""
    config = make_config(
        IcyLake(horizon=15),
        constraint=Chance(limit=2.5, epsilon=0.3),
        seeds=SEEDS,
        overrides=("algo.hidden=[8]",),
    )
    headline = directory.Headline("IcyLake", "canary", len(SEEDS), 1000)
    run = directory.create(
        root, headline, config_to_dict(config), device="cpu", command=["canary", "train"]
    )
    groups = SeedGroups(make_trainer(config), terms_of(config), SEEDS, 1, 1)
    groups.start()
    path = checkpoint.checkpoint_path(run / "checkpoints", 0)
    checkpoint.save(path, groups.stacked(), metadata=bound(config, 0))
    groups.close()
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def certificate(run: Path) -> dict:
    return certify_run(run, Request(**{**vars(QUICK), "shift": ("slip=0.4",)}), quiet=True)


def test_a_run_is_certified_for_every_seed_and_shift(run: Path, certificate: dict):
    assert certificate == directory.read_json(run / "certificate.json")
    assert [(one["seed"], one["changes"]) for one in certificate["results"]] == [
        (seed, changes) for changes in ({}, {"slip": 0.4}) for seed in SEEDS
    ]
    assert certificate["plan"]["statements"] == 4
    assert certificate["plan"]["cost_bound"] == 15
    assert certificate["settings"]["horizon"] == 15
    assert certificate["origin"] == {
        "run": run.name,
        "algorithm": "canary",
        "updates": 0,
        "earlier": 0,
    }
    assert {"python", "jax", "numpy", "scipy"} <= certificate["versions"].keys()
    assert len({one["evidence"]["policy_sha256"] for one in certificate["results"]}) == len(SEEDS)
    costs = [tuple(map(tuple, one["evidence"]["costs"])) for one in certificate["results"]]
    assert len(set(costs)) == 4


def test_it_verifies_against_its_run_and_by_replaying(run: Path, certificate: dict, tmp_path: Path):
    played = []
    result = verify_file(run, replay=True, report=lambda seed, count: played.append(count))
    assert (result["valid"], result["problems"], result["verdict"]) == (
        True,
        [],
        certificate["verdict"],
    )
    assert result["level"] == "replayed"
    assert "all " in result["shown"][-1]
    assert sum(played) == sum(one["assessment"]["episodes"] for one in certificate["results"])
    elsewhere = tmp_path / "mine.json"
    elsewhere.write_text(json.dumps(certificate))
    assert verify_file(elsewhere)["level"] == "consistent"
    assert verify_file(elsewhere, run=run)["level"] == "belongs"
    assert any(
        "ever played" in sentence for sentence in verify_file(elsewhere, run=run)["not_shown"]
    )
    with pytest.raises(CanaryError, match="needs the run"):
        verify_file(elsewhere, replay=True)


def test_four_things_are_enough_to_replay_it_elsewhere(
    run: Path, certificate: dict, tmp_path: Path
):
    """What to commit beside a certificate, as docs/certification.md says."""
    for name in ("config.json", "manifest.json"):
        shutil.copy(run / name, tmp_path)
    shutil.copytree(run / "checkpoints", tmp_path / "checkpoints")
    directory.write_json(tmp_path / "certificate.json", certificate)
    result = verify_file(tmp_path, replay=0.1)
    assert (result["valid"], result["level"]) == (True, "replayed"), result


def test_a_share_is_replayed_with_the_probability_that_a_forgery_escapes(
    run: Path, certificate: dict
):
    episodes = sum(one["assessment"]["episodes"] for one in certificate["results"])
    result = verify_file(run, replay=0.2)
    assert (result["level"], result["valid"]) == ("replayed", True)
    played = sum(-(-one["assessment"]["episodes"] // 5) for one in certificate["results"])
    assert f"{played:,} of {episodes:,} episodes, drawn at random" in result["shown"][-1]
    assert "escaped with probability 0.8 for 1, " in result["shown"][-1]
    assert any("Mean return" in sentence for sentence in result["not_shown"])


def test_a_second_certification_keeps_the_first(run: Path, certificate: dict, tmp_path: Path):
    folder = shutil.copytree(run, tmp_path / "copy")
    request = Request(**{**vars(QUICK), "seeds": (3,)})
    for count in (1, 2):
        again = certify_run(run, request, out=folder, quiet=True)
        assert again["origin"]["earlier"] == count
    kept = sorted(path.name for path in folder.glob("certificate-*"))
    assert len(kept) == 4
    assert directory.read_json(folder / kept[1].replace(".html", ".json")) == certificate
    assert directory.read_json(folder / "certificate.json") == again
    assert [path.name for path in folder.iterdir() if path.suffix == ".tmp"] == []


def test_edits_are_found_out(run: Path, certificate: dict, tmp_path: Path):
    path = tmp_path / "certificate.json"
    text = json.dumps(certificate)
    for old, new in (
        ('"slip": 0.333', '"slip": 0.222'),
        ('"violations": ', '"violations": 1'),
        ('"seed": 0', '"seed": 1'),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        assert not verify_file(path)["valid"]
    path.write_text(text[:-40])
    with pytest.raises(CanaryError, match="damaged"):
        verify_file(path)


def forged(certificate: dict, **changes) -> dict:
    changed = json.loads(json.dumps(certificate)) | changes
    return changed | {"sha256": content_hash(changed)}


def test_forgeries_with_a_new_hash_are_found_out_beside_the_run(
    run: Path, certificate: dict, tmp_path: Path
):
    path = tmp_path / "certificate.json"
    settings = certificate["settings"] | {"slip": 0.2}
    origin = certificate["origin"]
    for changes, words in (
        ({"settings": settings}, "settings differ from the run's in slip"),
        (
            {"environment": "PointGoal"},
            "The environment is 'PointGoal' here but 'IcyLake' in the run",
        ),
        ({"cost_discount": 0.9}, "cost_discount is 0.9"),
        ({"origin": origin | {"algorithm": "ppo"}}, "algorithm is 'ppo'"),
        ({"origin": origin | {"updates": 9}}, "updates is 9"),
    ):
        directory.write_json(path, forged(certificate, **changes))
        assert verify_file(path)["valid"]  # consistent in itself
        assert any(words in problem for problem in verify_file(path, run=run)["problems"])
    directory.write_json(path, forged(certificate, evaluation_seed=12))
    assert verify_file(path, run=run)["valid"]
    replayed = verify_file(path, run=run, replay=True)
    assert len(replayed["problems"]) == 4
    assert re.search(
        r"Seed 3 \(slip = 0.4\): of \d+ episodes played again, \d+ had other",
        replayed["problems"][-1],
    )


def test_a_plan_that_was_changed_afterwards_is_found_out_by_replaying(
    run: Path, certificate: dict, tmp_path: Path
):
    """All of these are consistent in themselves, but the episodes are drawn from what was decided
    before them."""
    path, plan = tmp_path / "certificate.json", certificate["plan"]
    older = {name: value for name, value in certificate.items() if name != "constraint"}
    for changed in (
        certificate | {"plan": plan | {"batch": plan["batch"] + 1}},
        older | {"format": 2},
    ):
        directory.write_json(path, forged(changed))
        assert verify_file(path, run=run)["valid"]
        assert not verify_file(path, run=run, replay=True)["valid"]


def test_costs_of_zero_with_all_else_recomputed_are_found_out_by_replaying(
    run: Path, tmp_path: Path
):
    """The forgery that once passed as valid: every cost 0, and bounds, verdict and hash
    recomputed."""
    request = Request(**{**vars(QUICK), "seeds": (0,), "early_stop": False})
    honest = certify_run(run, request, out=tmp_path, quiet=True)
    evidence = Evidence(
        **honest["results"][0]["evidence"] | {"costs": ((0.0, 150),), "order": "150x0"}
    )
    chance, plan = Chance(limit=honest["limit"], epsilon=honest["epsilon"]), Plan(**honest["plan"])
    result = Result(
        seed=0, changes={}, evidence=evidence, assessment=assess(evidence, plan, chance)
    )
    verdict, sentence = summarise((result,), plan)
    result = json.loads(json.dumps(dataclasses.asdict(result)))
    forgery = forged(honest, results=[result], verdict=verdict, sentence=sentence)
    directory.write_json(tmp_path / "certificate.json", forgery)
    (tmp_path / "certificate.html").unlink()
    assert verdict == "SATISFIED"
    # And says that nothing shows the episodes
    assert verify_file(tmp_path, run=run)["level"] == "belongs"
    assert not verify_file(tmp_path, run=run, replay=True)["valid"]
    caught = sum(not verify_file(tmp_path, run=run, replay=0.05)["valid"] for _ in range(3))
    assert caught == 3


def test_a_changed_page_is_found_out(run: Path, certificate: dict, tmp_path: Path):
    page = (run / "certificate.html").read_text()
    path = tmp_path / "certificate.html"
    path.write_text(page)
    assert (verify_file(path)["valid"], verify_file(path, run=run, replay=True)["level"]) == (
        True,
        "replayed",
    )
    for old, new in ((certificate["verdict"], "EXCELLENT"), ("seed 3", "seed 4"), ("95%", "99%")):
        assert old in page
        path.write_text(page.replace(old, new, 1))
        assert not verify_file(path)["valid"]
    path.write_text(page.replace('id="certificate"', 'id="other"'))
    with pytest.raises(CanaryError, match="no certificate"):
        verify_file(path)
    directory.write_json(tmp_path / "certificate.json", certificate)
    assert any("carries no certificate" in problem for problem in verify_file(tmp_path)["problems"])


def test_a_signed_certificate_says_whose_it_is(run: Path, tmp_path: Path):
    key = ed25519.Ed25519PrivateKey.generate()
    signed = certify_run(run, Request(**{**vars(QUICK), "sign": key}), out=tmp_path, quiet=True)
    assert verify_file(tmp_path)["signed_by"].startswith("SHA256:")
    assert verify_file(tmp_path / "certificate.html", key=key.public_key())["valid"]
    directory.write_json(tmp_path / "certificate.json", forged(signed, time="yesterday"))
    (tmp_path / "certificate.html").unlink()
    assert "changed after it was signed" in verify_file(tmp_path)["problems"][0]
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    directory.write_json(tmp_path / "certificate.json", signed)
    assert "another key" in verify_file(tmp_path, key=other)["problems"][0]


@pytest.mark.usefixtures("certificate")
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_sick_policy_gets_no_verdict(run: Path, tmp_path: Path, number: float):
    run = shutil.copytree(run, tmp_path / "copy")
    rewrite_policy(run, lambda bias: bias.at[1, 0].set(number))
    with pytest.raises(CanaryError, match="policy of seed 3 has numbers that are not finite"):
        certify_run(run, QUICK, out=tmp_path / "x", quiet=True)
    certify_run(run, Request(**{**vars(QUICK), "seeds": (0,)}), out=tmp_path / "x", quiet=True)


def rewrite_policy(run: Path, change) -> None:
    config = config_from_dict(directory.read_json(run / "config.json"))
    states, iteration, _ = load_states(config, run)
    place = lambda state: state.learner.policy.network.biases[0]  # noqa: E731
    states = eqx.tree_at(place, states, change(place(states)))
    path = checkpoint.checkpoint_path(run / "checkpoints", iteration)
    checkpoint.save(path, states, metadata=bound(config, iteration))


@pytest.mark.usefixtures("certificate")
def test_other_policies_are_found_out(run: Path, tmp_path: Path):
    run = shutil.copytree(run, tmp_path / "copy")
    assert verify_file(run)["valid"]
    rewrite_policy(run, lambda bias: bias.at[:, 0].add(1e-6))
    problems = verify_file(run)["problems"]
    assert [
        f"The policy of seed {seed} is not the one that was certified: its digest differs."
        for seed in SEEDS
    ] == problems


def test_without_a_seed_the_evaluation_draws_its_own(run: Path, tmp_path: Path):
    request = Request(**{**vars(QUICK), "seeds": (3,), "evaluation_seed": None})
    fresh = certify_run(run, request, out=tmp_path / "x", quiet=True)
    assert fresh["evaluation_seed"] != QUICK.evaluation_seed
    assert [one["seed"] for one in fresh["results"]] == [3]
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [
        "certificate.html",
        "certificate.json",
    ]


def test_another_limit_and_a_fixed_plan(run: Path, tmp_path: Path):
    request = Request(
        episodes=120,
        batch=50,
        evaluation_seed=1,
        seeds=(0,),
        limit=14.5,
        epsilon=0.05,
        early_stop=False,
    )
    certificate = certify_run(run, request, out=tmp_path, quiet=True)
    (result,) = certificate["results"]
    assert (certificate["limit"], certificate["epsilon"], certificate["verdict"]) == (
        14.5,
        0.05,
        "SATISFIED",
    )
    assert result["assessment"]["episodes"] == 120
    assert result["assessment"]["upper"] == pytest.approx(1 - 0.05 ** (1 / 120))
    assert result["evidence"]["method"] == "fixed"
    assert verify_file(tmp_path / "certificate.json", run=run)["valid"]


def test_an_interruption_leaves_a_valid_certificate(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def start(self, seed, changes):
        def report(episodes, violations):
            if seed == 3:
                raise KeyboardInterrupt

        return report

    monkeypatch.setattr(CertificationBar, "start", start)
    request = Request(
        **{
            **vars(QUICK),
            "shift": ("slip=0.4",),
            "epsilon": 0.5,
            "limit": 1.5,
            "confidence": 0.9999,
        }
    )
    certificate = certify_run(run, request, out=tmp_path, quiet=True)
    assert [one["assessment"]["episodes"] for one in certificate["results"]][1:] == [50, 0, 0]
    assert [one["evidence"]["interrupted"] for one in certificate["results"]] == [
        False,
        True,
        True,
        True,
    ]
    assert certificate["results"][2]["assessment"]["verdict"] == "UNDECIDED"
    assert verify_file(tmp_path / "certificate.json", run=run, replay=True)["valid"]
    assert "nothing is known" in certificate["results"][3]["assessment"]["sentence"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(seeds=(0, 7)), "no seed 7"),
        (Request(seeds=(0, 0)), "different seeds"),
        (Request(shift=("slope=0.1",)), "no setting 'slope'; did you mean slip"),
        (Request(shift=("slip=much",)), "--shift expects"),
        (Request(shift=("slip",)), "--shift expects"),
        (Request(shift=("map=1",)), "no numeric setting 'map'"),
        (Request(shift=("slip=0.9",)), "slip of IcyLake"),
        (Request(shift=("horizon=20.5",)), "horizon of IcyLake"),
        (Request(confidence=1.5), "confidence must lie strictly"),
        (Request(episodes=0), "number of episodes"),
        (Request(epsilon=2.0), "Epsilon must lie strictly"),
        (Request(shift=("slip=0.1,0.33333333333",)), "changes nothing"),
        (Request(evaluation_seed=2**32), "below 2**31"),
        (
            Request(episodes=50, batch=50, largest_step_cost=0.01),
            "states itself that a step costs at most",
        ),
    ],
)
def test_mistakes_are_sentences(run: Path, tmp_path: Path, request_: Request, words: str):
    with pytest.raises(CanaryError, match=re.escape(words)):
        certify_run(run, request_, out=tmp_path, quiet=True)
    assert list(tmp_path.iterdir()) == []


class Reader(HTMLParser):
    """Collects text and complains about tags that do not match."""

    VOID = frozenset({"meta", "br"})

    def __init__(self):
        super().__init__()
        self.open, self.words, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_whole_and_self_contained(run: Path, certificate: dict):
    reader = Reader()
    page = (run / "certificate.html").read_text()
    reader.feed(page)
    text = " ".join(" ".join(reader.words).split())
    assert reader.open == []
    assert reader.links == []
    assert "http" not in page
    for words in (
        certificate["verdict"],
        certificate["sentence"],
        certificate["sha256"],
        "seed 3, slip = 0.4",
    ):
        assert words in text
    assert page.count("<svg") == 2
    assert page.count("<circle") == 4
    hostile = certificate | {
        "sentence": "<script>alert(1)</script>",
        "origin": certificate["origin"] | {"run": "<b>"},
    }
    assert "<script>" not in render_page(hostile)


def test_the_histogram_counts_every_episode_and_cuts_at_the_limit(certificate: dict):
    nominal = [one for one in certificate["results"] if not one["changes"]]
    for limit in (2.5, 2.0, 0.5, 40.0):
        drawing = histogram(certificate | {"limit": limit})
        assert drawing is not None
        expected = sum(
            count for one in nominal for cost, count in one["evidence"]["costs"] if cost > limit
        )
        assert sum(bar.count for bar in drawing["bars"] if bar.violates) == expected
        assert sum(bar.count for bar in drawing["bars"]) == drawing["episodes"]
        assert all((bar.x >= drawing["limit"] - 1e-6) == bar.violates for bar in drawing["bars"])
    assert histogram(certificate | {"results": []}) is None


def test_the_table_shows_every_row(certificate: dict):
    console = Console(record=True, width=160, file=io.StringIO())
    print_certificate(console, certificate, [Path("certificate.json")])
    text = console.export_text()
    for words in (
        certificate["verdict"],
        "seed 3, slip = 0.4",
        "all 4 rows together",
        "certificate.json",
    ):
        assert words in text


def test_evaluation_keys_are_none_of_training():
    """Training folds the seed, then an iteration number, into its key; the stream is no iteration
    number it can reach.
    """
    keys = [
        jax.random.key_data(certificates.episode_key(0, seed, row, decided))
        for seed in (0, 1)
        for row in (0, 1)
        for decided in ((1, 2), (2, 1))
    ]
    assert len({tuple(np.asarray(key)) for key in keys}) == 8
    assert certificates.STREAM > 1e9
