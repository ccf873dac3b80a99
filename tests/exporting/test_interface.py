"""A policy of a Gymnasium run plays in the environment itself what evaluation measured of it."""

import io
import json
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces

import canary
from canary.environments import from_gymnasium
from canary.environments.gymnasium_environment import draw_identities
from canary.exporting import numpy_policy
from canary.exporting.formats import numpy_bytes
from canary.host.episodes import SEED_BITS
from canary.host.player import describe_spaces
from canary.runs.policies import EvaluationPlan, load_policies, play
from exporting.portable_policies import make_portable
from problems.host_environments import Rooms, Walk
from runs.untrained_runs import untrained_run

MOVES = spaces.Discrete(3, start=-1)
SEEN = {
    "numbers": spaces.Box(-5, 5, (3,)),
    "picture": spaces.Box(0, 255, (2, 3, 3), np.uint8),
    "counted": spaces.Discrete(5, start=10),
    "several counted": spaces.MultiDiscrete([3, 2, 4], start=[1, 0, -2]),
    "bits": spaces.MultiBinary((2, 2)),
    "nested": spaces.Dict(
        b=spaces.Dict(x=spaces.Box(-9, 9, (2, 2)), k=spaces.Discrete(2)),
        a=spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(0, 1, ()))),
    ),
}
DONE = {
    "one bound": spaces.Box(np.float32([0]), np.float32([2])),
    "table": spaces.Box(np.array([[-1.2, 0], [3, 5.1]]), np.array([[7, 0.1], [9, 6]]), dtype=float),
    "one number": spaces.Box(-3, 0.3, ()),
    "counted": MOVES,
}


@pytest.mark.parametrize("kind", SEEN)
def test_a_policy_sees_what_gymnasium_flattens(kind: str):
    space = SEEN[kind]
    space.seed(0)
    values = [space.sample() for _ in range(20)]
    interface = json.loads(json.dumps(describe_spaces(space, MOVES, "it")))
    rows = numpy_policy.observation_rows(values, interface)
    expected = [spaces.utils.flatten(space, value) for value in values]
    np.testing.assert_array_equal(rows, np.array(expected, np.float32).reshape(20, -1))
    np.testing.assert_array_equal(numpy_policy.observation_row(values[3], interface), rows[3])
    assert rows.dtype == np.float32
    assert sum(entry["size"] for entry in interface["observation"]) == rows.shape[1]


@pytest.mark.parametrize("kind", DONE)
def test_actions_are_clipped_and_stretched(kind: str):
    space, random = DONE[kind], np.random.default_rng(0)
    interface = json.loads(json.dumps(describe_spaces(SEEN["numbers"], space, "it")))
    if isinstance(space, spaces.Discrete):
        rows = random.integers(3, size=50)
        expected = rows + space.start
    else:
        rows = random.normal(scale=2, size=(50, int(np.prod(space.shape)))).astype(np.float32)
        low, high = space.low.astype(float).ravel(), space.high.astype(float).ravel()
        expected = low + (np.clip(rows, -1, 1) + 1) / 2 * (high - low)
    together = numpy_policy.environment_action(rows, interface)
    for row, one, wanted in zip(rows, together, expected, strict=True):
        found = numpy_policy.environment_action(row, interface)
        assert space.contains(found)
        np.testing.assert_allclose(np.ravel(found), wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(found, one)
        assert found.dtype == one.dtype


HORIZON, LIMIT = 12, 3.0
KINDS = {"numbers": Walk, "counted": Rooms}


@pytest.fixture(scope="module", params=KINDS)
def played(request, tmp_path_factory) -> tuple[canary.Run, Any]:
    """A small Gymnasium run, and its environment as everybody makes it."""
    make = KINDS[request.param]
    environment = from_gymnasium(make, horizon=HORIZON)
    constraint = canary.Chance(limit=LIMIT, epsilon=0.2)
    folder = tmp_path_factory.mktemp("runs")
    run = untrained_run(folder, env=environment, seeds=(0,), constraint=constraint, sharpness=5.0)
    return canary.load(run, environment), make()


def loop(environment: Any, episode: Any, seed: int, **how: Any) -> tuple[float, float]:
    """The loop of docs/export.md: return and cost of an episode."""
    observation, _ = environment.reset(seed=seed)
    gained = 0.0
    for _ in range(HORIZON):
        action = episode.act(observation, **how)
        assert environment.action_space.contains(action)
        observation, reward, terminated, truncated, info = environment.step(action)
        episode.spend(info["cost"])
        gained += reward
        if terminated or truncated:
            break
    return gained, episode.spent


def test_the_handle_plays_the_evaluated_episodes(played):
    """With most likely actions the same episodes; with sampled ones the same distribution."""
    run, environment = played
    policy = numpy_policy.load(run.export("numpy")["path"], run.policy().sha256)
    plan = EvaluationPlan(episodes=20, deterministic=True)
    rows = play(load_policies(run.config, run.directory), plan)[0].select("return", "cost")
    keys = jax.vmap(lambda key: jax.random.split(key, 3)[0])(plan.keys(0, 0))
    seeds = np.asarray(draw_identities(keys))[:, 0] & SEED_BITS
    for handle in (policy, run.policy()):
        assert handle.interface == run.config.environment.policy_interface
        for row, seed in list(zip(rows.to_numpy(), seeds, strict=True))[:10]:
            found = loop(environment, handle.start(0), int(seed), deterministic=True)
            np.testing.assert_allclose(found, row, rtol=1e-3, atol=1e-3)
    ours = np.array([loop(environment, policy.start(seed), seed) for seed in range(200)])
    theirs = run.evaluate(200)
    expected = np.array([theirs["return_mean"], theirs["cost_mean"]])
    error = np.sqrt(2) * ours.std(0) / np.sqrt(len(ours))
    assert (np.abs(ours.mean(0) - expected) < 4 * error + 1e-6).all()


def test_seeds_of_the_policy_and_of_the_environment_may_be_the_same():
    """Environments draw from default_rng(seed): actions must not follow their noise."""
    policy = numpy_policy.load(io.BytesIO(numpy_bytes(make_portable(continuous=True))))
    seen, pairs = np.zeros(5), []
    centre = policy.start(0).act(seen, deterministic=True)[0]
    for seed in range(400):
        noise = np.random.default_rng(seed).standard_normal(dtype=np.float32)
        pairs.append((noise, policy.start(seed).act(seen)[0] - centre))
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 0.2


def test_the_digest_holds_the_interface():
    portable, digests = make_portable(continuous=True), set()
    for high in (4, 5):
        interface = describe_spaces(spaces.Box(-1, 1, (5,)), spaces.Box(-2, high, (3,)), "it")
        environment = replace(portable.environment, policy_interface=interface)
        digests.add(replace(portable, environment=environment).identity.sha256)
    assert len(digests | {portable.identity.sha256}) == 3
