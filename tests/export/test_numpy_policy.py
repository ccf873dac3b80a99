"""The runner without JAX: it stands alone, keeps the JAX handle's account, and refuses what is
damaged."""

import ast
import hashlib
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
from canary.export import numpy_format, numpy_policy
from canary.export.portable import PortablePolicy, random_inputs
from canary.export.trained_policy import TrainedPolicy
from export.portable_policies import HORIZON, KINDS, OBSERVATIONS, make_portable, with_critics


def loaded(portable: PortablePolicy) -> numpy_policy.NumpyPolicy:
    return numpy_policy.load(io.BytesIO(numpy_format.encode(portable)))


def in_jax(portable: PortablePolicy) -> TrainedPolicy:
    return TrainedPolicy(
        policy=portable.policy,
        statistics=portable.statistics,
        account=portable.account,
        place=portable.place,
        critics=portable.critics,
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
        "import sys; blocked = dict.fromkeys(['jax', 'jaxlib', 'equinox', 'canary', 'scipy', "
        "'polars']);"
        "sys.modules.update(blocked); import numpy_policy;"
        f"print(numpy_policy.load('policy.npz').start(0).act([0.5] * {OBSERVATIONS}, "
        "deterministic=True))"
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


def test_continuous_actions_are_drawn_with_their_deviation_and_left_to_the_environment_to_clip():
    policy = loaded(make_portable(continuous=True))
    cases = np.random.default_rng(0).standard_normal((200, OBSERVATIONS))
    means = policy.outputs(cases, np.ones(200), np.zeros(200))["mean"]
    case = np.abs(means).max(axis=1).argmin()
    observation, mean = cases[case], means[case]
    assert np.abs(mean).max() < 0.9
    draws = np.array([policy.start(seed).act(observation) for seed in range(400)])
    # As in training, where the environment clips after its own noise
    assert np.abs(draws).max() > 1
    assert draws[:, 1].std() == pytest.approx(np.exp(-5), rel=0.2)  # the floor of the log deviation
    assert draws[:, 1].mean() == pytest.approx(mean[1], abs=2e-3)
    assert draws[:, 0].std() > 0.1


@pytest.mark.parametrize("dead_zone", [None, 0.0, 0.35])
@pytest.mark.parametrize("time_feature", [False, True])
def test_risk_is_that_of_the_jax_critics(dead_zone: float | None, time_feature: bool):
    portable = with_critics(
        make_portable(discount=0.9), dead_zone=dead_zone, time_feature=time_feature
    )
    policy = loaded(portable)
    assert policy.metadata["critics"] == {"dead_zone": dead_zone, "time_feature": time_feature}
    episode = policy.start(0)
    limit, discount = portable.account.limit, 1.0
    seen = np.array([0.3, -1, 0.2, 2, 0.5], np.float32)
    risks = []
    for time, cost in enumerate([0.0, 0.5, 1.0, 2.0, 3.0]):
        y = jnp.float32(episode.spent / limit)
        x = jnp.array(
            [*seen, discount, y, *([time / HORIZON] if time_feature else [])], jnp.float32
        )
        expected = remaining_risk(
            portable.critics.networks, x, y, jnp.float32(discount), dead_zone=dead_zone
        )
        risks.append(episode.risk(seen))
        assert risks[-1] == pytest.approx(float(expected), abs=1e-5)
        episode.act(seen)
        episode.spend(cost)
        discount *= 0.9
    assert episode.remaining < 0
    assert episode.risk(seen) == 1.0
    assert 0 <= min(risks) < 1


@pytest.mark.parametrize("dead_zone", [None, 0.0, 0.35])
def test_risk_of_many_states_is_that_of_the_jax_critics(dead_zone: float | None):
    """Every branch: nothing spent, within the dead zone, beyond it, at the limit, above it."""
    portable = with_critics(make_portable(), dead_zone=dead_zone)
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(300, OBSERVATIONS)).astype(np.float32)
    spent = np.resize(np.array([0.0, 0.3, 1.5, 2.4, 2.5, 4.0], np.float32), 300)
    discount, y = np.ones(300, np.float32), spent / np.float32(2.5)
    x = jnp.concatenate([observation, np.stack([discount, y], -1)], -1)
    expected = remaining_risk(
        portable.critics.networks, x, jnp.asarray(y), jnp.asarray(discount), dead_zone=dead_zone
    )
    found = loaded(portable).risk(observation, discount, spent)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert ((found > 0) & (found < 1)).sum() > 20
    assert (found[spent > 2.5] == 1).all()


def test_policies_without_critics_say_so():
    policy = loaded(make_portable())
    assert not policy.has_critics
    with pytest.raises(ValueError, match="no critics for this risk"):
        policy.start(0).risk(np.zeros(OBSERVATIONS))


def test_the_digest_is_the_one_of_run_certificate_and_handle():
    portable = with_critics(make_portable(normalised=True, continuous=True))
    policy = loaded(portable)
    assert policy.sha256 == portable.identity.sha256 == in_jax(portable).sha256
    assert numpy_policy.digest(portable.identity.facts, portable.identity.arrays) == policy.sha256
    data = numpy_format.encode(portable)
    assert numpy_policy.load(io.BytesIO(data), policy.sha256).sha256 == policy.sha256
    with pytest.raises(ValueError, match="holds another policy"):
        numpy_policy.load(io.BytesIO(data), "0" * 64)


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
        with pytest.raises(ValueError, match="not an intact"):
            numpy_policy.load(path)

    @pytest.mark.parametrize("kind", ["flip", "cut"])
    def test_no_flipped_byte_gives_another_policy(self, kind: str):
        """Every place of a small file: refused, or loaded with the same numbers."""
        portable = with_critics(make_portable(normalised=True))
        data, original, random = (
            numpy_format.encode(portable),
            loaded(portable),
            np.random.default_rng(0),
        )
        refused = 0
        for place in random.choice(len(data), 400, replace=False):
            damaged = bytearray(data)
            damaged[place] ^= 1 << int(random.integers(8))
            try:
                found = numpy_policy.load(
                    io.BytesIO(bytes(damaged if kind == "flip" else data[:place]))
                )
            except ValueError:
                refused += 1
                continue
            assert found.metadata == original.metadata  # a byte that no reader reads
            assert all(
                (found.arrays[name] == array).all() for name, array in original.arrays.items()
            )
        assert refused > 200

    def rewritten(
        self, path: Path, *, metadata: dict | None = None, keep_digests: bool = True, **arrays
    ) -> Path:
        """The artefact with other metadata or arrays, as somebody would write it who knows the
        format."""
        with np.load(
            io.BytesIO(numpy_format.encode(with_critics(make_portable(normalised=True))))
        ) as archive:
            members = dict(archive)
        known = json.loads(members.pop("metadata").tobytes()) | (metadata or {})
        members = {name: value for name, value in (members | arrays).items() if value is not None}
        if not keep_digests:
            known.pop("file_sha256")
            facts = {name: known[name] for name in known["facts"]}
            known["policy_sha256"] = numpy_policy.digest(facts, members)
            known["file_sha256"] = numpy_policy.digest(known, members)
        np.savez(path, metadata=np.frombuffer(json.dumps(known).encode(), np.uint8), **members)
        return path

    @pytest.mark.parametrize(
        "changes",
        [
            {"limit": 55.0},
            {"epsilon": 0.5},
            {"facts": []},
            {"arrays": []},
            {"critics": None},
            {"spent_clip": 1.0},
            {"versions": {}},
            {"algorithm": "ppo"},
            {"note": "approved"},
            {"format": 99},
            {"policy_sha256": "0" * 64},
        ],
    )
    def test_every_edit_of_the_metadata_is_refused(self, tmp_path: Path, changes: dict):
        with pytest.raises(ValueError, match="not an intact exported policy"):
            numpy_policy.load(self.rewritten(tmp_path / "edited.npz", metadata=changes))

    def test_every_edit_of_an_array_is_refused(self, tmp_path: Path):
        for name, array in with_critics(make_portable(normalised=True)).identity.arrays.items():
            for changed in (array + np.float32(0.5), -1 - array, None, array.astype(float)):
                with pytest.raises(ValueError, match="not an intact exported policy"):
                    numpy_policy.load(self.rewritten(tmp_path / "edited.npz", **{name: changed}))

    @pytest.mark.parametrize(
        ("metadata", "arrays"),
        [
            ({"limit": -1.0}, {}),
            ({"limit": "much"}, {}),
            ({"layers": 10**9}, {}),
            ({"layers": "x"}, {}),
            ({"actions": {}}, {}),
            ({"actions": None}, {}),
            ({"observation_size": 6}, {}),
            ({"critics": {}}, {}),
            ({"normaliser": {}}, {}),
            ({}, {"policy.network.biases[0]": np.full(16, np.nan, np.float32)}),
            ({}, {"policy.network.weights[1]": np.zeros((3, 3), np.float32)}),
            ({}, {"extra": np.zeros(3, np.float32)}),
        ],
    )
    def test_nonsense_with_right_digests_is_a_sentence(
        self, tmp_path: Path, metadata: dict, arrays: dict
    ):
        path = self.rewritten(
            tmp_path / "forged.npz", metadata=metadata, keep_digests=False, **arrays
        )
        with pytest.raises(ValueError, match="not an intact exported policy"):
            numpy_policy.load(path)

    def test_what_a_forger_writes_is_another_policy(self, tmp_path: Path):
        path = self.rewritten(tmp_path / "forged.npz", metadata={"limit": 55.0}, keep_digests=False)
        assert numpy_policy.load(path).limit == 55
        certified = loaded(with_critics(make_portable(normalised=True))).sha256
        with pytest.raises(ValueError, match="holds another policy"):
            numpy_policy.load(path, certified)

    def test_a_small_file_does_not_take_much_memory(self, tmp_path: Path):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, metadata=np.zeros(1 << 28, np.uint8))
        assert len(buffer.getvalue()) < 1 << 20
        with pytest.raises(ValueError, match="members that no policy has"):
            numpy_policy.load(io.BytesIO(buffer.getvalue()))

    def test_a_file_is_checked_with_the_digest_beside_it(self, tmp_path: Path):
        path = tmp_path / "policy.onnx"
        path.write_bytes(b"model")
        with pytest.raises(ValueError, match="There is no policy"):
            numpy_policy.read_checked(path)
        digest = hashlib.sha256(b"model").hexdigest()
        (tmp_path / "policy.onnx.sha256").write_text(f"{digest}  policy.onnx\n")
        assert numpy_policy.read_checked(path) == b"model"
        path.write_bytes(b"modem")
        with pytest.raises(ValueError, match="digest differs"):
            numpy_policy.read_checked(path)

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
