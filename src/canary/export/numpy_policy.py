"""Act with an exported policy; needs numpy and nothing else, so this one file can be copied anywhere.

    policy = load("policy.npz")
    episode = policy.start(seed=0)
    action = episode.act(observation)      # then, after the step:
    episode.spend(cost)
    episode.spent, episode.remaining

A policy sees x = (s, g, y): besides the observation, the cost discount and the cost spent so far in this
episode, in units of the limit. An `Episode` keeps that account. It has the distribution of the JAX handle,
not its random numbers: the most likely actions agree, sampled ones agree in law.
"""

import hashlib
import json
import math
import secrets
import zipfile
import zlib
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, BinaryIO, cast

import numpy as np

FORMAT = 1


@dataclass(frozen=True, eq=False)
class NumpyPolicy:
    """A frozen policy: its arrays by name, and everything that is known about it."""

    metadata: dict[str, Any]
    """Limit, epsilon, cost discount, environment and its settings, action space, layers, hash, origin."""
    arrays: dict[str, np.ndarray] = field(repr=False)

    @property
    def limit(self) -> float:
        return float(self.metadata["limit"])

    @property
    def is_discrete(self) -> bool:
        return self.metadata["actions"]["kind"] == "discrete"

    @property
    def has_critics(self) -> bool:
        """Whether `Episode.risk` can be asked."""
        return self.metadata["critics"] is not None

    def start(self, seed: int | None = None) -> "Episode":
        """A new episode with nothing spent; `seed` (a whole number) makes its actions repeatable."""
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"start() takes a whole number that is not negative, not {seed!r}.")
        return Episode(self, np.random.default_rng(secrets.randbits(63) if seed is None else seed))

    def inputs(self, observation: np.ndarray, discount: Any, spent: Any) -> np.ndarray:
        """x = (s, g, y) for observations [..., obs]; `spent` in raw units."""
        seen = np.asarray(observation, np.float32)
        if self.metadata["normaliser"] is not None:
            mean, squares, count = (
                self.arrays[f"statistics.{name}"] for name in ("mean", "squares", "count")
            )
            variance = squares / np.maximum(count, np.float32(1)) if count > 1 else np.ones_like(squares)
            clip = np.float32(self.metadata["normaliser"]["clip"])
            deviation = np.sqrt(variance + np.float32(self.metadata["normaliser"]["floor"]))
            seen = np.clip((seen - mean) / deviation, -clip, clip)
        clip = np.float32(self.metadata["spent_clip"])
        limits = np.clip(np.asarray(spent, np.float32) / np.float32(self.limit), -clip, clip)
        account = np.stack(np.broadcast_arrays(np.asarray(discount, np.float32), limits), -1)
        return np.concatenate([seen, np.broadcast_to(account, (*seen.shape[:-1], 2))], -1)

    def outputs(self, observation: np.ndarray, discount: Any, spent: Any) -> dict[str, np.ndarray]:
        """The parameters of the action distribution: `logits`, or `mean` and `log_std`."""
        out = self._network("policy.network", self.inputs(observation, discount, spent))
        if self.is_discrete:
            return {"logits": out}
        log_std = np.maximum(self.arrays["policy.log_std"], np.float32(self.metadata["log_std_floor"]))
        return {"mean": out, "log_std": np.broadcast_to(log_std, out.shape)}

    def risk(self, observation: np.ndarray, discount: Any, spent: Any, elapsed: Any = 0.0) -> np.ndarray:
        """Cantelli's bound on P(C > limit) given where the episode is: the critics' estimate, no guarantee.

        E[C | x] = y + g V(x), E[C^2 | x] = y^2 + g V~(x), in units of the limit; `elapsed` is t / horizon.
        """
        if not self.has_critics:
            raise ValueError(
                f"A policy of {self.metadata['algorithm']} has no critics that estimate this risk."
            )
        x = self.inputs(observation, discount, spent)
        if self.metadata["critics"]["time_feature"]:
            time = np.broadcast_to(np.asarray(elapsed, np.float32), x.shape[:-1])
            x = np.concatenate([x, time[..., None]], -1)
        value, second = (self._network("critics", x, critic)[..., 0] for critic in (0, 1))
        g, y = np.asarray(discount, np.float32), np.asarray(spent, np.float32) / np.float32(self.limit)
        value = np.maximum(value, 0)
        square = 2 * y * value + g * second if self.metadata["critics"]["structured"] else second
        mean = y + g * value
        variance = y**2 + g * square - mean**2
        cantelli = np.where(mean < 1, variance / np.where(variance > 0, variance + (1 - mean) ** 2, 1), 1.0)
        # Critics that contradict each other leave Markov's bound: E[R] / (1 - y), R the cost to come.
        markov = np.minimum(g * value / np.where(y < 1, 1 - y, 1), 1.0)
        markov = np.where((y > 1) | ((y == 1) & (value > 0)), 1.0, markov)
        return np.where(variance > 0, cantelli, markov)

    def _network(self, name: str, x: np.ndarray, critic: int | None = None) -> np.ndarray:
        """A tanh network with a linear head; it reads as many entries of x as its first layer has rows."""
        layers = self.metadata["layers"]
        for layer in range(layers):
            weight, bias = self.arrays[f"{name}.weights[{layer}]"], self.arrays[f"{name}.biases[{layer}]"]
            if critic is not None:
                weight, bias = weight[critic], bias[critic]
            x = x[..., : weight.shape[0]] @ weight + bias
            x = np.tanh(x) if layer < layers - 1 else x
        return x


class Episode:
    """One episode: `act`, do it, `spend` its cost, and so on until the environment ends it."""

    def __init__(self, policy: NumpyPolicy, random: np.random.Generator):
        self._policy, self._random = policy, random
        self._time, self._spent, self._discount, self._has_acted = 0, 0.0, 1.0, False

    @property
    def spent(self) -> float:
        """The (discounted) cost of this episode so far, in raw units."""
        return self._spent

    @property
    def remaining(self) -> float:
        """What may still be spent before the limit is passed; negative once it has been."""
        return self._policy.limit - self._spent

    def act(self, observation: Any, deterministic: bool = False) -> int | np.ndarray:
        """The action for this observation: an int, or a vector within [-1, 1]."""
        if self._has_acted:
            raise ValueError(
                "act() was called twice; call spend(cost) with the cost of the first action before."
            )
        seen = self._checked(observation)
        out = self._policy.outputs(seen, self._discount, self._spent)
        self._has_acted = True
        if self._policy.is_discrete:
            logits = out["logits"]
            if deterministic:
                return int(logits.argmax())
            return int(self._random.choice(logits.size, p=probabilities(logits)))
        action = out["mean"]
        if not deterministic:
            noise = self._random.standard_normal(action.shape, np.float32)
            action = action + np.exp(out["log_std"]) * noise
        return np.clip(action, -1.0, 1.0)  # as the environment did in training

    def spend(self, cost: float) -> None:
        """Enter the cost of the last action, 0 included: y_{t+1} = y_t + g_t c_t."""
        if not self._has_acted:
            raise ValueError(
                "spend() was called without an action before; call act(observation) first, then spend once."
            )
        try:
            value = float(cost)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"The cost of a step must be a finite number, not {cost!r} (step {self._time}).")
        self._spent += self._discount * value
        self._discount *= float(self._policy.metadata["cost_discount"])
        self._time, self._has_acted = self._time + 1, False

    def risk(self, observation: Any) -> float:
        """The critics' bound on the probability that this episode ends above the limit, as it stands now."""
        elapsed = self._time / self._policy.metadata["horizon"]
        seen = self._checked(observation)
        return float(self._policy.risk(seen, self._discount, self._spent, elapsed))

    def _checked(self, observation: Any) -> np.ndarray:
        size = int(self._policy.metadata["observation_size"])
        try:
            seen = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise ValueError(f"An observation must be {size} numbers, not {observation!r}.") from None
        if seen.shape != (size,):
            raise ValueError(f"An observation must have the shape ({size},), not {seen.shape}.")
        if not np.isfinite(seen).all():
            raise ValueError(f"The observation is not finite at index {int(np.argmin(np.isfinite(seen)))}.")
        return seen


def load(path: str | PathLike | BinaryIO) -> NumpyPolicy:
    """The policy in an .npz artefact (a path or a binary file); what is damaged or was changed is refused."""
    if isinstance(path, str | PathLike):
        try:
            with open(path, "rb") as file:
                return _read(file, path)
        except OSError as error:
            raise ValueError(f"There is no policy {path} ({error.strerror}).") from None
    return _read(cast(BinaryIO, path), "this file")


def _read(file: BinaryIO, path: Any) -> NumpyPolicy:
    try:
        with np.load(file, allow_pickle=False) as archive:
            metadata = json.loads(archive["metadata"].tobytes())
            arrays = {name: archive[name] for name in archive.files if name != "metadata"}
    except (
        ValueError,
        KeyError,
        EOFError,
        AttributeError,
        TypeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(f"{path} is not an intact exported policy ({error}); export it again.") from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a policy of format {FORMAT}; export it again with this version.")
    if (
        not set(metadata["arrays"]) <= set(arrays)
        or digest(arrays, metadata["arrays"]) != metadata["policy_sha256"]
    ):
        raise ValueError(f"The arrays of {path} do not match the policy's hash; export it again.")
    return NumpyPolicy(metadata, arrays)


def digest(arrays: dict[str, np.ndarray], names: list[str]) -> str:
    """SHA-256 of policy and normaliser (name, type, shape, bytes of the arrays), as in certificates."""
    result = hashlib.sha256()
    for name in names:
        array = np.asarray(arrays[name])
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        result.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        result.update(array.tobytes())
    return result.hexdigest()


def probabilities(logits: np.ndarray) -> np.ndarray:
    """softmax, in double precision so that it adds up to 1 for whoever draws from it."""
    shifted = np.exp(logits.astype(float) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
