"""The policy without JAX: it stands alone, acts as the JAX handle does, and refuses damage."""

import io
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from canary.exporting import numpy_policy
from canary.exporting.formats import numpy_bytes
from canary.exporting.trained_policy import TrainedPolicy
from canary.networks import critic_values
from canary.rollout import policy_inputs
from exporting.portable_policies import HORIZON, KINDS, OBSERVATIONS, make_portable, with_critics

ZEROS = np.zeros(OBSERVATIONS)


def loaded(portable: TrainedPolicy) -> numpy_policy.NumpyPolicy:
    return numpy_policy.load(io.BytesIO(numpy_bytes(portable)))


def test_it_needs_numpy_alone(tmp_path: Path):
    """Copied to an empty directory and run in a Python that finds no other package."""
    shutil.copy(numpy_policy.__file__, tmp_path / "numpy_policy.py")
    (tmp_path / "policy.npz").write_bytes(numpy_bytes(make_portable()))
    program = (
        "import sys; import numpy; known = {*sys.modules};"
        "import numpy_policy; new = {name.partition('.')[0] for name in {*sys.modules} - known};"
        "assert new <= {*sys.stdlib_module_names, 'numpy', 'numpy_policy'}, new;"
        "episode = numpy_policy.load('policy.npz').start(0);"
        f"print(episode.act([0.5] * {OBSERVATIONS}, deterministic=True))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    action = make_portable().start(0).act([0.5] * OBSERVATIONS, deterministic=True)
    assert int(result.stdout) == action


@pytest.mark.parametrize(
    "kind", ["normalised continuous", "discounted", "with a clock and a budget layer"]
)
def test_an_episode_keeps_the_account_and_sees_it(kind: str):
    """The most likely action in every step is JAX's for an account that is kept here by hand."""
    portable = make_portable(**KINDS[kind])
    episode, spent, pace = portable.start(0), 0.0, 1.0
    observations = np.random.default_rng(9).normal(size=(8, OBSERVATIONS)).astype(np.float32)
    for time, cost in enumerate([0, 1.5, 0.25, 0, 3, 0.1, 0, 1]):
        seen, discount = observations[time], portable.account.cost_discount
        pace = time / HORIZON if portable.account.clock else discount**time
        x = policy_inputs(
            seen, jnp.float32(spent), jnp.float32(pace), portable.account, portable.statistics
        )
        found = episode.act(seen, deterministic=True)
        np.testing.assert_allclose(found, portable.policy(x).mode(), atol=1e-5)
        episode.spend(cost)
        spent += discount**time * cost
        assert episode.spent == pytest.approx(spent)
        assert episode.remaining == pytest.approx(2.5 - spent)
    assert episode.remaining < 0


def test_sampled_actions_follow_the_policy_and_repeat_with_the_seed():
    policy, observation = loaded(make_portable()), np.linspace(-1, 1, OBSERVATIONS)
    draws = [policy.start(seed).act(observation) for seed in range(3000)]
    assert draws[:50] == [policy.start(seed).act(observation) for seed in range(50)]
    chance = numpy_policy.probabilities(policy.outputs(observation, 1.0, 0.0)["logits"])
    assert chance.max() < 0.9
    rates = np.bincount(draws, minlength=4) / 3000
    assert (np.abs(rates - chance) <= 4 * np.sqrt(chance * (1 - chance) / 3000) + 1e-3).all()


@pytest.mark.parametrize("dead_zone", [None, 0.0, 0.35])
def test_risk_of_many_states_is_that_of_the_critics(dead_zone: float | None):
    """Every branch: nothing spent, within the dead zone, beyond it, at the limit, above it."""
    portable = with_critics(make_portable(), dead_zone=dead_zone)
    observation = np.random.default_rng(0).normal(size=(300, OBSERVATIONS)).astype(np.float32)
    spent = np.resize(np.array([0.0, 0.3, 1.5, 2.4, 2.5, 4.0], np.float32), 300)
    discount, y = np.ones(300, np.float32), spent / np.float32(2.5)
    x = jnp.concatenate([observation, np.stack([discount, y], -1)], -1)
    value, *square = np.asarray(critic_values(portable.critics.networks, x))
    value = np.maximum(value, 0)
    if dead_zone is None:
        expected = numpy_policy.cantelli_risk(value, *square, y, discount)
    else:
        expected = numpy_policy.shaped_risk(value, y, dead_zone)
    found = loaded(portable).risk(observation, discount, spent)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert ((found > 0) & (found < 1)).sum() > 20
    assert (found[spent > 2.5] == 1).all()


def test_the_risk_follows_the_account_and_after_the_end_is_what_happened():
    policy = with_critics(make_portable(discount=0.9, clock=True, budgets=1))
    seen, episode = np.array([0.3, -1, 0.2, 2, 0.5], np.float32), policy.start(0)
    for time, (cost, ended) in enumerate([(0.0, False), (2.6, False), (1.0, False), (0.0, True)]):
        account = np.float32([time / HORIZON, episode.spent, 0.9**time])
        assert episode.risk(seen) == pytest.approx(float(loaded(policy).risk(seen, *account)))
        episode.act(seen)
        episode.spend(cost, ended)
    assert episode.risk(seen) == float(episode.spent > 2.5)
    for cost, risk in ((2.5, 0.0), (2.6, 1.0)):
        episode = with_critics(make_portable()).start(0)
        episode.act(ZEROS)
        episode.spend(cost, ended=True)
        assert episode.risk(ZEROS) == risk
    with pytest.raises(ValueError, match="has ended"):
        episode.act(ZEROS)
    with pytest.raises(ValueError, match="without an action"):
        episode.spend(0.0)


def test_costs_and_observations_that_do_not_fit():
    episode = loaded(make_portable()).start(0)
    for observation in (np.zeros((1, OBSERVATIONS)), [math.nan] * 5):
        with pytest.raises(ValueError, match=r"[Oo]bservation"):
            episode.act(observation)
    episode.act(ZEROS)  # the mistakes changed nothing
    with pytest.raises(ValueError, match="finite number"):
        episode.spend(math.nan)
    assert episode.spent == 0


def edited(repair: bool, metadata: dict, arrays: dict) -> io.BytesIO:
    """The file with other metadata or arrays; `repair` computes the digests anew."""
    data = numpy_bytes(with_critics(make_portable(normalised=True)))
    with np.load(io.BytesIO(data)) as archive:
        members = dict(archive) | arrays
    known = json.loads(members.pop("metadata").tobytes()) | metadata
    if repair:
        known.pop("file_sha256")
        facts = {name: known[name] for name in known["facts"]}
        known["policy_sha256"] = numpy_policy.digest(facts, members)
        known["file_sha256"] = numpy_policy.digest(known, members)
    buffer = io.BytesIO()
    np.savez(buffer, metadata=np.frombuffer(json.dumps(known).encode(), np.uint8), **members)
    return io.BytesIO(buffer.getvalue())


def test_every_edit_is_refused():
    for changes in (({"limit": 55.0}, {}), ({}, {"policy.network.biases[0]": np.ones(16)})):
        with pytest.raises(ValueError, match="not an intact exported policy"):
            numpy_policy.load(edited(False, *changes))


def test_an_edit_with_right_digests_is_another_policy():
    assert numpy_policy.load(edited(True, {"limit": 55.0}, {})).limit == 55
    certified = with_critics(make_portable(normalised=True)).sha256
    with pytest.raises(ValueError, match="holds another policy"):
        numpy_policy.load(edited(True, {"limit": 55.0}, {}), certified)
