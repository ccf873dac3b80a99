"""The runner without JAX: it stands alone, keeps the JAX handle's account, and refuses what is damaged."""

import ast
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

from canary.algorithms.remaining_risk import remaining_risk
from canary.certification import policy_hash
from canary.export import numpy_format, numpy_policy
from canary.export.portable import PortablePolicy, random_inputs
from canary.trained_policy import TrainedPolicy
from export.portable_policies import HORIZON, KINDS, OBSERVATIONS, make_portable, with_critics


def loaded(portable: PortablePolicy) -> numpy_policy.NumpyPolicy:
    return numpy_policy.load(io.BytesIO(numpy_format.encode(portable)))


def in_jax(portable: PortablePolicy) -> TrainedPolicy:
    return TrainedPolicy(
        policy=portable.policy,
        statistics=portable.statistics,
        augmentation=portable.augmentation,
        observation_size=portable.observation_size,
        action_space=portable.action_space,
    )


def test_it_needs_numpy_alone(tmp_path: Path):
    """Copied to an empty directory and run in a Python that finds no other package."""
    source = Path(numpy_policy.__file__)
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(source.read_text()))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else
                     [node.module or ""] if isinstance(node, ast.ImportFrom) else [])
    }  # fmt: skip
    assert imported - set(sys.stdlib_module_names) == {"numpy"}
    shutil.copy(source, tmp_path / "numpy_policy.py")
    (tmp_path / "policy.npz").write_bytes(numpy_format.encode(make_portable()))
    program = (
        "import sys; blocked = dict.fromkeys(['jax', 'jaxlib', 'equinox', 'canary', 'scipy', 'polars']);"
        "sys.modules.update(blocked); import numpy_policy;"
        f"print(numpy_policy.load('policy.npz').start(0).act([0.5] * {OBSERVATIONS}, deterministic=True))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    action = in_jax(make_portable()).start(0).act([0.5] * OBSERVATIONS, deterministic=True)
    assert int(result.stdout) == action


def test_importing_it_from_canary_does_not_import_jax():
    program = "import sys, canary.export.numpy_policy; sys.exit('jax' in sys.modules)"
    path = str(Path(numpy_policy.__file__).parents[2])
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": path}, check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_handle_keeps_the_same_account_as_in_jax(kind: str):
    portable = make_portable(**KINDS[kind])
    ours, theirs = loaded(portable).start(0), in_jax(portable).start(0)
    observations, _, _ = random_inputs(portable, 8, seed=9)
    for observation, cost in zip(observations, [0, 1.5, 0.25, 0, 3, 0.1, 0, 1], strict=True):
        expected = theirs.act(observation, deterministic=True)
        found = ours.act(observation, deterministic=True)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert type(found) is type(expected)
        ours.spend(cost)
        theirs.spend(cost)
        assert (ours.spent, ours.remaining) == (theirs.spent, theirs.remaining)
    assert ours.remaining < 0


def test_sampled_actions_follow_the_policy_and_repeat_with_the_seed():
    portable = make_portable()
    policy, observation = loaded(portable), np.linspace(-1, 1, OBSERVATIONS)
    draws = [policy.start(seed).act(observation) for seed in range(3000)]
    assert draws[:50] == [policy.start(seed).act(observation) for seed in range(50)]
    chance = numpy_policy.probabilities(policy.outputs(observation, 1.0, 0.0)["logits"])
    assert chance.max() < 0.9
    rates = np.bincount(draws, minlength=4) / 3000
    assert (np.abs(rates - chance) <= 4 * np.sqrt(chance * (1 - chance) / 3000) + 1e-3).all()


def test_continuous_actions_are_drawn_with_their_deviation_and_clipped():
    policy = loaded(make_portable(continuous=True))
    cases = np.random.default_rng(0).standard_normal((200, OBSERVATIONS))
    means = policy.outputs(cases, np.ones(200), np.zeros(200))["mean"]
    case = np.abs(means).max(axis=1).argmin()
    observation, mean = cases[case], means[case]
    assert np.abs(mean).max() < 0.9
    draws = np.array([policy.start(seed).act(observation) for seed in range(400)])
    assert np.abs(draws).max() <= 1
    assert draws[:, 1].std() == pytest.approx(np.exp(-5), rel=0.2)  # the floor of the log deviation
    assert draws[:, 1].mean() == pytest.approx(mean[1], abs=2e-3)
    assert draws[:, 0].std() > 0.1


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("time_feature", [False, True])
def test_risk_is_that_of_the_jax_critics(structured: bool, time_feature: bool):
    portable = with_critics(make_portable(discount=0.9), structured=structured, time_feature=time_feature)
    episode = loaded(portable).start(0)
    limit, discount = portable.augmentation.limit, 1.0
    seen = np.array([0.3, -1, 0.2, 2, 0.5], np.float32)
    risks = []
    for time, cost in enumerate([0.0, 0.5, 1.0, 2.0, 3.0]):
        y = np.float32(episode.spent / limit)
        x = np.array([*seen, discount, y, *([time / HORIZON] if time_feature else [])], np.float32)
        expected = remaining_risk(
            portable.critics.networks, jnp.asarray(x), y, discount, structured=structured
        )
        risks.append(episode.risk(seen))
        assert risks[-1] == pytest.approx(float(expected), abs=1e-5)
        episode.act(seen)
        episode.spend(cost)
        discount *= 0.9
    assert episode.remaining < 0
    assert episode.risk(seen) == 1.0
    assert 0 <= min(risks) < 1


def test_policies_without_critics_say_so():
    policy = loaded(make_portable())
    assert not policy.has_critics
    with pytest.raises(ValueError, match="no critics that estimate this risk"):
        policy.start(0).risk(np.zeros(OBSERVATIONS))


def test_the_hash_is_the_one_that_certificates_state():
    portable = with_critics(make_portable(normalised=True, continuous=True))
    policy = loaded(portable)
    assert numpy_policy.digest(policy.arrays, policy.metadata["arrays"]) == policy_hash(
        portable.policy, portable.statistics
    )


class TestMistakes:
    @pytest.fixture
    def episode(self) -> numpy_policy.Episode:
        return loaded(make_portable()).start(0)

    def test_acting_twice(self, episode: numpy_policy.Episode):
        episode.act(np.zeros(OBSERVATIONS))
        with pytest.raises(ValueError, match=r"call spend\(cost\)"):
            episode.act(np.zeros(OBSERVATIONS))

    def test_spending_without_acting(self, episode: numpy_policy.Episode):
        with pytest.raises(ValueError, match="without an action"):
            episode.spend(1.0)

    @pytest.mark.parametrize("cost", [math.nan, math.inf, None, "much"])
    def test_costs_that_are_no_numbers(self, episode: numpy_policy.Episode, cost: object):
        episode.act(np.zeros(OBSERVATIONS))
        with pytest.raises(ValueError, match="finite number"):
            episode.spend(cost)  # type: ignore[arg-type]
        assert episode.spent == 0

    @pytest.mark.parametrize(
        "observation", [np.zeros(4), np.zeros((1, OBSERVATIONS)), "x", None, [math.nan] * 5]
    )
    def test_observations(self, episode: numpy_policy.Episode, observation: object):
        with pytest.raises(ValueError, match=r"[Oo]bservation"):
            episode.act(observation)
        episode.act(np.zeros(OBSERVATIONS))  # the mistake left no trace

    @pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
    def test_seeds(self, seed: object):
        with pytest.raises(ValueError, match="whole number"):
            loaded(make_portable()).start(seed)  # type: ignore[arg-type]


class TestDamage:
    def test_missing(self, tmp_path: Path):
        with pytest.raises(ValueError, match="There is no policy"):
            numpy_policy.load(tmp_path / "none.npz")

    @pytest.mark.parametrize("data", [b"", b"PK", b"\x93NUMPY nothing"])
    def test_not_an_artefact(self, tmp_path: Path, data: bytes):
        (tmp_path / "policy.npz").write_bytes(data)
        with pytest.raises(ValueError, match="not an intact exported policy"):
            numpy_policy.load(tmp_path / "policy.npz")

    def test_cut_short_and_flipped_bits(self, tmp_path: Path):
        data = bytearray(numpy_format.encode(make_portable()))
        path = tmp_path / "policy.npz"
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises(ValueError, match="not an intact"):
            numpy_policy.load(path)
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"not an intact|hash"):
            numpy_policy.load(path)

    def test_edited_weights_and_other_formats(self, tmp_path: Path):
        with np.load(io.BytesIO(numpy_format.encode(make_portable()))) as archive:
            members = dict(archive)
        edited = members | {"policy.network.biases[0]": members["policy.network.biases[0]"] + 0.5}
        np.savez(tmp_path / "edited.npz", **edited)
        with pytest.raises(ValueError, match="hash"):
            numpy_policy.load(tmp_path / "edited.npz")
        text = json.dumps({"format": 99}).encode()
        np.savez(tmp_path / "later.npz", **(members | {"metadata": np.frombuffer(text, np.uint8)}))
        with pytest.raises(ValueError, match="format 1"):
            numpy_policy.load(tmp_path / "later.npz")

    def test_pickles_are_not_opened(self, tmp_path: Path):
        np.savez(tmp_path / "evil.npz", metadata=np.array([{}], object), allow_pickle=True)
        with pytest.raises(ValueError, match="not an intact"):
            numpy_policy.load(tmp_path / "evil.npz")


def test_batches_and_single_inputs_agree():
    portable = make_portable(normalised=True)
    policy, inputs = loaded(portable), random_inputs(portable, 16)
    batch = policy.outputs(*inputs)["logits"]
    single = [policy.outputs(*(part[i] for part in inputs))["logits"] for i in range(16)]
    np.testing.assert_allclose(batch, single, atol=1e-5)
