"""Several costs at once: a promise, a price and a verdict for each, against an exact optimum."""

import json
import re

import equinox as eqx
import examples.courier
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.courier import CONSTRAINT, Courier

import canary
from canary.algorithms.advantages import Batch
from canary.algorithms.base import EstimationConfig
from canary.algorithms.priced import Price, expected_sum, priced_objective
from canary.certification.verify import verify_file
from canary.cli.options import parse
from canary.cli.train import Train
from canary.config.config import make_config
from canary.constraints import Chance, CVaR, Joint, Mean, from_dict, parts_of, to_dict
from canary.errors import CanaryError
from canary.exporting import numpy_policy
from canary.numerics.costs import empty_window, record_episodes
from canary.numerics.statistics import measurement
from canary.reporting.page import make_report
from canary.types import Rollout
from problems.probe_mdps import EPSILON, LIMIT, population
from problems.terms import make_terms
from problems.two_limits import best_return
from tiny_runs import TINY

BOTH = Joint((Chance(2.65, 0.05), Mean(30.0)))


def test_a_joint_constraint_is_as_good_as_its_worst_part():
    costs = np.array([[1.0, 10.0], [3.0, 20.0], [0.0, 60.0], [2.0, 30.0]])
    assert BOTH.measure(costs) == 0.25 / 0.05
    assert Joint((Chance(3.5, 0.05), Mean(30.0))).measure(costs) == 1.0
    found = measurement(BOTH, costs)
    assert found.lower < found.value == 5.0 < found.upper
    assert BOTH.text == "P(cost 1 > 2.65) <= 0.05 and mean cost 2 <= 30"
    assert from_dict(json.loads(json.dumps(to_dict(BOTH)))) == BOTH
    assert parts_of(Mean(3.0)) == (Mean(3.0),)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (None, "P(cost 1 > 2.65) <= 0.05 and mean cost 2 <= 30"),
        ([CVaR(2, 0.1), Mean(9)], "CVaR 10% of cost 1 <= 2 and mean cost 2 <= 9"),
        ({"limit": (1.5, 20.0)}, "P(cost 1 > 1.5) <= 0.05 and mean cost 2 <= 20"),
        ({"epsilon": 0.1}, "P(cost 1 > 2.65) <= 0.1 and mean cost 2 <= 30"),
        (
            {"kind": "chance", "limit": (3.0, 40.0), "epsilon": (0.05, 0.01)},
            "P(cost 1 > 3) <= 0.05 and P(cost 2 > 40) <= 0.01",
        ),
    ],
)
def test_limits_may_be_said_in_part(said, text):
    assert make_config(Courier(), constraint=said).constraint.text == text


@pytest.mark.parametrize(
    ("env", "choices", "words"),
    [
        (Courier(), {"constraint": Chance(2.65, 0.05)}, "has 2 costs"),
        ("IcyLake", {"constraint": CONSTRAINT}, "has 1 cost"),
        (Courier(), {"algorithm": "cpo"}, "one constraint only"),
        (Courier(), {"constraint": {"limit": (1.0, 2.0, 3.0)}}, "3 limits"),
        (Courier(), {"constraint": ["mean", Mean(3.0)]}, "list of two or more"),
    ],
)
def test_what_does_not_fit_is_a_sentence(env, choices, words):
    with pytest.raises(CanaryError, match=words):
        make_config(env, **choices)


def with_second_cost(rollout: Rollout) -> Rollout:
    """The same batch with a second cost and limit, half of the first in raw units."""

    def places(each: Rollout) -> tuple:
        return each.cost, each.spent, each.spent_raw, each.episodes.cost

    halves = (1.0, 1.0, 0.5, 0.5)
    pairs = zip(places(rollout), halves, strict=True)
    return eqx.tree_at(places, rollout, [jnp.stack([a, a * half], -1) for a, half in pairs])


def test_each_constraint_is_charged_for_as_if_it_were_alone():
    """Advantages add up by their prices; levels, prices, targets and metrics are those of one."""
    estimation = EstimationConfig(gae_lambda=0.9, window=1)
    rollout, _, _ = population(1.0)
    kinds, limits, shares = ("chance", "mean"), (LIMIT, LIMIT / 2), (EPSILON, 1.0)
    values = 0.1 * np.random.default_rng(0).normal(size=(2, 3, *rollout.cost.shape))
    reward = 2 * (jnp.zeros_like(rollout.cost),)

    def objective(rollout, chosen, critics):
        one = len(chosen) == 1
        window = empty_window(rollout.done.size, () if one else (2,))
        batch = Batch(
            rollout, reward, *jnp.asarray(values[:, [0, *critics]]),
            record_episodes(window, rollout.episodes),
        )  # fmt: skip
        terms = (np.array([each[i] for i in chosen]) for each in (limits, shares))
        terms = make_terms(*(each[0] if one else each for each in terms))
        penalties = [expected_sum(estimation, kinds[index]) for index in chosen]
        return priced_objective(penalties, 1, 1)(batch, terms, Price(jnp.zeros(terms.limit.shape)))

    both = with_second_cost(rollout)
    found = objective(both, (0, 1), (1, 2))
    alone = [objective(each, (i,), (i + 1,)) for i, each in enumerate(both.by_cost())]
    prices = [float(each.metrics["multiplier"]) for each in alone]
    total = sum(each.advantage * (1 + price) for each, price in zip(alone, prices, strict=True))
    np.testing.assert_allclose(found.advantage * (1 + sum(prices)), total, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.targets[1:], [each.targets[1] for each in alone], rtol=1e-5)
    np.testing.assert_allclose(found.metrics["multiplier"], sum(prices), rtol=1e-5)
    levels = [float(each.metrics["constraint_level"]) for each in alone]
    assert levels[0] != levels[1]
    assert float(found.metrics["constraint_level"]) == pytest.approx(max(levels))
    assert float(found.metrics["constraint_level_2"]) == pytest.approx(levels[1])


def test_both_promises_of_the_courier_bind():
    limits = ({}, {"epsilon": None}, {"fuel": None})
    best = [best_return(**{"epsilon": 0.05, "fuel": 30.0, **less})[0] for less in limits]
    text = str(examples.courier.__doc__)
    for value in best:
        assert f"{value:.2f}" in text
    assert best[0] < 0.97 * min(best[1:])


def test_a_tour_is_over_after_its_last_leg():
    """As a truncation, the critic would count on the reward of legs that do not follow."""
    tour = Courier(horizon=1)
    state = tour.step(tour.reset(jax.random.key(0)), jnp.array(1), jax.random.key(1))
    assert state.terminated
    assert not state.truncated


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two seeds, a few updates."""
    return canary.train(
        Courier(), seeds=2, total_steps=720, overrides=TINY | {"training.rollout_length": 60}, quiet=True, final_check=False,
        out=tmp_path_factory.mktemp("runs"),
    )  # fmt: skip


def test_summary_and_evaluation_tell_of_each_promise(run, capsys):
    costs = run.episodes.filter(run.episodes["valid"])["cost"].to_numpy()
    assert costs.shape[1] == 2
    evaluation = run.evaluate(50)
    for summary in (run.summary(), evaluation):
        first, second = summary["constraints"]
        assert first["constraint_label"] == "P(cost 1 > 2.65)"
        assert second["constraint_per_seed"] == second["cost_per_seed"]
        levels = [first["violation_per_seed"][0] / 0.05, second["cost_per_seed"][0] / 30]
        assert summary["constraint_per_seed"][0] == pytest.approx(max(levels))
        safe = [value <= 1 for value in summary["constraint_per_seed"]]
        assert summary["safe_fraction"] == np.mean(safe)
    assert (run.directory / "training.png").exists()
    again = canary.load(run.directory, Courier())
    assert again.config.constraint == BOTH
    assert again.evaluate(50)["return_per_seed"] == evaluation["return_per_seed"]


@pytest.mark.parametrize("format", ["numpy", "onnx"])
def test_a_policy_sees_what_was_spent_of_each_cost(run, tmp_path, format):
    """The handle and the exports agree with JAX (`check_parity`), and keep both accounts."""
    path = tmp_path / f"policy.{format}"
    record = run.export(format, path, seed=1)
    assert record["max_abs_difference"] < 1e-5
    policies = [run.policy(seed=1)]
    policies += [numpy_policy.load(path)] if format == "numpy" else []
    for policy in policies:
        episode, seen = policy.start(seed=0), np.array([1.0, 0.0])
        for cost in ([1.0, 2.0], [0.0, 1.5]):
            assert episode.act(seen, deterministic=True) in range(3)
            episode.spend(cost)
        assert episode.spent.tolist() == [1.0, 3.5]
        assert episode.remaining.tolist() == pytest.approx([1.65, 26.5])
        episode.act(seen)
        with pytest.raises(ValueError, match="2 finite numbers"):
            episode.spend(1.0)
        episode.spend([2.0, 0.0], ended=True)
        assert episode.risk(seen) == 1.0


def test_the_report_shows_each_promise(run, tmp_path):
    page = make_report([str(run.directory)], tmp_path, tmp_path, tmp_path / "page.html")
    subjects = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])
    for each, part in zip(subjects, BOTH.parts, strict=True):
        assert each["line"]["constraint"].startswith(part.text)
    assert subjects[0]["pooled"]["bound"]
    assert subjects[1]["updates"]["multiplier"] != subjects[0]["updates"]["multiplier"]


def test_all_promises_are_certified_together_and_verified(run):
    certificate = run.certify(episodes=300, evaluation_seed=1)
    assert certificate["plan"]["statements"] == 4
    assert certificate["plan"]["cost_bound"] == [20.0, 40.0]
    names = [(one["seed"], one["promise"]) for one in certificate["results"]]
    assert names == [(0, 1), (0, 2), (1, 1), (1, 2)]
    verdicts = {one["verdict"] for one in certificate["results"]}
    if certificate["verdict"] == "SATISFIED":
        assert verdicts == {"SATISFIED"}
    else:
        assert certificate["verdict"] in verdicts
    page = (run.directory / "certificate.html").read_text()
    for part in ("mean cost 2", "P(cost 1 &gt; 2.65)"):
        assert f"Bounds on {part}" in page
    found = verify_file(run.directory, run=run.directory, environment=Courier())
    assert found["level"] == "replayed", found["problems"]


def test_the_command_line_takes_lists():
    words = ["--constraint", "chance,mean", "--limit", "3,40", "--epsilon", "0.1"]
    command = parse("train", Train, words)
    said = {"kind": command.constraint, "limit": command.limit, "epsilon": command.epsilon}
    text = "P(cost 1 > 3) <= 0.1 and mean cost 2 <= 40"
    assert make_config(Courier(), constraint=said).constraint.text == text
