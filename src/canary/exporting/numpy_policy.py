"""Act with an exported policy. This file needs numpy alone and can be copied anywhere.

    policy = load("policy.npz")
    episode = policy.start(seed=0)
    action = episode.act(observation)           # then, after the step:
    episode.spend(cost, ended=is_last_step)
    episode.spent, episode.remaining

A policy sees x = (s, p, y): the observation, the pace, and the cost spent so far in this episode in
units of the limit. The pace is t / clock, or the cost discount g_t if the metadata has no `clock`.
An `Episode` computes pace and spent cost. It takes observations and returns actions of the
environment in which the policy was trained.

A changed file is refused because of its digest. `load(path, sha256=...)` accepts only the policy
with the digest that a certificate states.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

FORMAT = 3
STATISTICS = ("statistics.mean", "statistics.squares", "statistics.count")
STREAM = 0x616374  # "act"


@dataclass(frozen=True, eq=False)
class NumpyPolicy:
    """A frozen policy: its arrays by name, and its metadata."""

    metadata: dict[str, Any]
    """Limit, epsilon, cost discount, clock, environment, actions, interface, layers, digests, origin."""
    arrays: dict[str, np.ndarray] = field(repr=False)

    @property
    def limit(self) -> Any:
        """A number; for several costs, an array."""
        limit = self.metadata["limit"]
        return np.array(limit, float) if isinstance(limit, list) else float(limit)

    @property
    def sha256(self) -> str:
        """The digest of everything that determines the policy's behaviour, as in certificates."""
        return str(self.metadata["policy_sha256"])

    @property
    def interface(self) -> dict[str, Any] | None:
        """Conversion of the environment's observations and actions; None: they are not converted."""
        return self.metadata["interface"]

    @property
    def is_discrete(self) -> bool:
        return self.metadata["actions"]["kind"] == "discrete"

    @property
    def has_critics(self) -> bool:
        """Whether `Episode.risk` can be computed during an episode."""
        return self.metadata["critics"] is not None

    def start(self, seed: int | None = None) -> "Episode":
        """A new episode; with a `seed` its actions are reproducible."""
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"start() takes a non-negative whole number, not {seed!r}.")
        # Another stream than default_rng(seed), from which Gymnasium's environments draw
        random = np.random.default_rng([secrets.randbits(63) if seed is None else seed, STREAM])
        return Episode(self, random)

    def inputs(self, observation: np.ndarray, pace: Any, spent: Any) -> np.ndarray:
        """The networks' input x = (s, p, y), for observations [..., obs] and raw `spent`."""
        seen = np.asarray(observation, np.float32)
        if (normaliser := self.metadata["normaliser"]) is not None:
            clip, floor = np.float32(normaliser["clip"]), np.float32(normaliser["floor"])
            mean, squares, count = (self.arrays[name] for name in STATISTICS)
            variance = squares / count if count > 1 else np.ones_like(squares)
            seen = np.clip((seen - mean) / np.sqrt(variance + floor), -clip, clip)
        clip = np.float32(self.metadata["spent_clip"])
        limits = np.clip(np.asarray(spent, np.float32) / np.float32(self.limit), -clip, clip)
        limits = limits if np.ndim(self.limit) else limits[..., None]
        account = [
            np.broadcast_to(each, (*seen.shape[:-1], each.shape[-1]))
            for each in (np.asarray(pace, np.float32)[..., None], limits)
        ]
        return np.concatenate([seen, *account], -1)

    def outputs(self, observation: np.ndarray, pace: Any, spent: Any) -> dict[str, np.ndarray]:
        """The parameters of the action distribution: `logits`, or `mean` and `log_std`."""
        out = self._network("policy.network", self.inputs(observation, pace, spent))
        if self.is_discrete:
            return {"logits": out}
        floor = np.float32(self.metadata["log_std_floor"])
        log_std = np.maximum(self.arrays["policy.log_std"], floor)
        return {"mean": out, "log_std": np.broadcast_to(log_std, out.shape)}

    def risk(self, observation: Any, pace: Any, spent: Any, discount: Any = 1.0) -> np.ndarray:
        """The critics' estimate of a bound on P(C > limit | x); `discount` is g_t."""
        if not self.has_critics:
            raise ValueError(f"{self.metadata['algorithm']} has no critics for this risk.")
        x = self.inputs(observation, pace, spent)
        y = np.asarray(spent, np.float32) / np.float32(self.limit)
        # A fitted value can be slightly negative; costs are not
        value = np.maximum(self._network("critics", x, 0)[..., 0], 0)
        dead_zone = self.metadata["critics"]["dead_zone"]
        if dead_zone is not None:
            return shaped_risk(value, y, dead_zone)
        square = self._network("critics", x, 1)[..., 0]
        return cantelli_risk(value, square, y, np.asarray(discount, np.float32))

    def _network(self, name: str, x: np.ndarray, critic: int | None = None) -> np.ndarray:
        """A tanh network with a linear head."""
        layers = self.metadata["layers"]
        for layer in range(layers):
            weight, bias = (self.arrays[f"{name}.{p}[{layer}]"] for p in ("weights", "biases"))
            if critic is not None:
                weight, bias = weight[critic], bias[critic]
            x = (x if layer else self._first(x, weight.shape[0])) @ weight + bias
            x = np.tanh(x) if layer < layers - 1 else x
        return x

    def _first(self, x: np.ndarray, rows: int) -> np.ndarray:
        """The input of a first layer with `rows` rows: the first entries of x, then their products
        with each spent cost."""
        budgets = int(self.metadata["budgets"])
        x = x[..., : rows // (1 + budgets)]
        shares = np.float32(self.metadata["spent_scale"]) * np.clip(
            x[..., x.shape[-1] - budgets :], 0, 1
        )
        return np.concatenate([x, *(shares[..., i, None] * x for i in range(budgets))], -1)


def shaped_risk(value: np.ndarray, y: np.ndarray, dead_zone: float) -> np.ndarray:
    """Markov's bound for Canary: P(C > limit | x) <= E[X | x] = phi(y) + V_X(x), where `value` is the
    critic V_X of the remaining shaped cost and y the spent cost in limits."""
    return np.minimum(np.clip((y - dead_zone) / (1 - dead_zone), 0, 1) + value, 1)


def cantelli_risk(
    value: np.ndarray, square: np.ndarray, y: np.ndarray, g: np.ndarray
) -> np.ndarray:
    """Cantelli's bound for the paper's Canary, from its critics V of the cost and V~ of its square:
    E[C | x] = y + g V(x) and E[C^2 | x] = y^2 + g V~(x), in limits."""
    mean = y + g * value
    variance = y**2 + g * square - mean**2
    both = np.where(variance > 0, variance + (1 - mean) ** 2, 1)
    cantelli = np.where(mean < 1, variance / both, 1.0)
    # Without a positive variance, Markov's bound: E[R] / (1 - y), R the remaining cost
    markov = np.minimum(g * value / np.where(y < 1, 1 - y, 1), 1.0)
    markov = np.where((y > 1) | ((y == 1) & (value > 0)), 1.0, markov)
    return np.where(variance > 0, cantelli, markov)


class Episode:
    """One episode: repeat `act`, a step of the environment, and `spend` with the cost of the step.

    The spent cost y_{t+1} = y_t + g_t c_t is in raw units and double precision.
    """

    def __init__(self, policy: NumpyPolicy, random: Any):
        self._policy, self._random, self._limit = policy, random, policy.limit
        self._time, self._spent, self._discount = 0, 0.0 * self._limit, 1.0
        self._has_acted = self._has_ended = False

    @property
    def _pace(self) -> float:
        """The networks' time input: t / clock, or g_t without a clock."""
        clock = self._policy.metadata["clock"]
        return self._discount if clock is None else self._time / clock

    @property
    def spent(self) -> Any:
        """The (discounted) cost of this episode so far, in raw units; an array for several costs."""
        return self._spent

    @property
    def remaining(self) -> Any:
        """The remaining cost within the limit; negative above it."""
        return self._limit - self._spent

    def act(self, observation: Any, deterministic: bool = False) -> Any:
        """The environment's action for this observation.

        For a Gymnasium environment it is in the action space. Otherwise it is an int, or a vector
        that the environment clips to [-1, 1].
        """
        if self._has_ended:
            raise ValueError("The episode has ended; start() begins another one.")
        if self._has_acted:
            raise ValueError("act() was called twice; call spend(cost) after each action.")
        out = self._policy.outputs(self._checked(observation), self._pace, self._spent)
        if self._policy.is_discrete:
            chances = probabilities(out["logits"])
            mode = chances.argmax()
            action = int(mode if deterministic else self._random.choice(chances.size, p=chances))
        else:
            size = out["mean"].shape
            noise = 0 if deterministic else self._random.standard_normal(size, np.float32)
            action = out["mean"] + np.exp(out["log_std"]) * noise
        self._has_acted = True
        return environment_action(action, self._policy.interface)

    def spend(self, cost: Any, ended: bool = False) -> None:
        """Add the cost of the last action, even if it is 0; several costs are a list. `ended` marks
        the last step."""
        if not self._has_acted:
            raise ValueError("spend() was called without an action; call act(observation) first.")
        shape = np.shape(self._limit)
        try:
            value = np.asarray(cost, float).reshape(shape) if shape else float(cost)
        except (TypeError, ValueError):
            value = np.nan
        if not np.isfinite(value).all():
            what = f"{shape[0]} finite numbers" if shape else "a finite number"
            raise ValueError(f"The cost of step {self._time} is not {what}: {cost!r}.")
        self._spent = self._spent + self._discount * value
        self._discount *= float(self._policy.metadata["cost_discount"])
        self._time, self._has_acted, self._has_ended = self._time + 1, False, bool(ended)

    def risk(self, observation: Any) -> float:
        """The critics' bound on the probability that this episode ends above the limit.

        After `spend(cost, ended=True)` it is 1 above the limit, else 0.
        """
        seen = self._checked(observation)
        if self._has_ended:
            return float(np.any(self._spent > self._limit))
        return float(self._policy.risk(seen, self._pace, self._spent, self._discount))

    def _checked(self, observation: Any) -> np.ndarray:
        seen = observation_row(observation, self._policy.interface)
        if seen.shape != (size := self._policy.metadata["observation_size"],):
            raise ValueError(f"An observation has the shape ({size},), not {seen.shape}.")
        if not (finite := np.isfinite(seen)).all():
            raise ValueError(f"The observation is not finite at index {int(finite.argmin())}.")
        return seen


def observation_row(observation: Any, interface: dict[str, Any] | None) -> np.ndarray:
    """An observation of the environment as a row of numbers for the policy."""
    if interface is not None:
        return observation_rows([observation], interface)[0]
    try:
        return np.asarray(observation, np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"The observation is not made of numbers: {observation!r:.60}.") from None


def observation_rows(observations: Sequence[Any], interface: dict[str, Any]) -> np.ndarray:
    """A row for each of several observations."""
    parts = [_entries(observations, **entry) for entry in interface["observation"]]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 1)


def _entries(seen: Any, path: list[Any], kind: str, size: int, values: Any = ()) -> np.ndarray:
    """A part of each row; counted ones become one-hot, with pairs (first value, count) in `values`."""
    where, is_counted = "".join(f"[{key!r}]" for key in path), kind == "counted"
    try:
        for key in path:
            seen = [each[key] for each in seen]
        part = np.array(seen, float if is_counted else np.float32).reshape(len(seen), -1)
        if is_counted:
            columns = zip(part.T[..., None], values, strict=True)
            part = np.concatenate([np.arange(n) == x - first for x, (first, n) in columns], 1)
    except (TypeError, LookupError, ValueError):
        raise ValueError(f"The observation lacks {where or 'numbers'}: {seen!r:.60}.") from None
    if part.shape[1] != size or (is_counted and (part.sum(1) != len(values)).any()):
        raise ValueError(f"The observation{where} is {seen[0]!r:.60}, which is not in its space.")
    return part.astype(np.float32, copy=False)


def environment_action(action: Any, interface: dict[str, Any] | None) -> Any:
    """The environment's action for one of the policy: shifted to the first choice, or clipped to
    [-1, 1] and scaled to the bounds. With several environments, they are the first axis."""
    if interface is None:
        return action
    space, kind = interface["action"], np.dtype(interface["action"]["dtype"])
    if space["kind"] == "counted":
        return np.asarray(action).astype(kind) + kind.type(space["start"])
    low, high = np.asarray(space["low"], float), np.asarray(space["high"], float)
    scaled = (high + low) / 2 + (high - low) / 2 * np.clip(action, *space["clip"])
    return scaled.astype(kind).reshape((*np.shape(action)[:-1], *space["shape"]))


def load(path: str | os.PathLike | BinaryIO, sha256: str | None = None) -> NumpyPolicy:
    """The policy in an .npz file. A changed file is refused; with `sha256`, the digest that a
    certificate states, any other policy is refused too."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
        metadata = json.loads(arrays.pop("metadata").tobytes())
        if metadata["format"] != FORMAT:
            raise ValueError(f"its format is {metadata['format']!r}; this version reads {FORMAT}")
        stated, facts = metadata.pop("file_sha256"), {n: metadata[n] for n in metadata["facts"]}
        if digest(metadata, arrays) != stated or digest(facts, arrays) != metadata["policy_sha256"]:
            raise ValueError("its content does not match its digest")
    except Exception as error:  # any reader (zip, numpy, JSON) can fail on damage
        raise ValueError(
            f"{path} is not an intact exported policy ({error}); export it again."
        ) from error
    policy = NumpyPolicy(metadata, arrays)
    if sha256 is not None and policy.sha256 != sha256:
        raise ValueError(f"{path} holds another policy than the requested one: {policy.sha256}.")
    return policy


def digest(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of the facts as sorted JSON, then of every array: name, type, shape and bytes."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    result = hashlib.sha256(f"{text}\n".encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        result.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        result.update(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes())
    return result.hexdigest()


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax in double precision, so that the probabilities sum to 1 as `choice` requires."""
    shifted = np.exp(logits.astype(float) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
