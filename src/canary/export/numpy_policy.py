"""Act with an exported policy. Needs numpy and nothing else: this file can be copied anywhere.

    policy = load("policy.npz")
    episode = policy.start(seed=0)
    action = episode.act(observation)      # then, after the step:
    episode.spend(cost)
    episode.spent, episode.remaining

A policy sees x = (s, g, y): besides the observation, the cost discount and the cost spent so far in
this episode, in units of the limit. An `Episode` keeps that account. It has the distribution of the
JAX handle, not its random numbers: the most likely actions agree, sampled ones agree in law. It
takes the observations and gives the actions of the environment that it was trained in.

A file that was changed anywhere is refused: it states the digest of all that it holds, and that of
the policy (`policy.sha256`), which certificates and the run state too. `load(path, sha256=...)`
accepts one policy only.
"""

import hashlib
import io
import json
import os
import secrets
import zipfile
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import numpy as np

FORMATS, LARGEST_FILE = (2, 3), 1 << 30  # files of format 2 know no interface
STATISTICS = ("statistics.mean", "statistics.squares", "statistics.count")
PARTS = ("weights", "biases")  # of a layer
STREAM = 0x616374  # "act"


@dataclass(frozen=True, eq=False)
class NumpyPolicy:
    """A frozen policy: its arrays by name, and everything that is known about it."""

    metadata: dict[str, Any]
    """Limit, epsilon, cost discount, environment, actions, interface, layers, digests, origin."""
    arrays: dict[str, np.ndarray] = field(repr=False)

    @property
    def limit(self) -> float:
        return float(self.metadata["limit"])

    @property
    def sha256(self) -> str:
        """The digest of everything that determines how the policy behaves, as in certificates."""
        return str(self.metadata["policy_sha256"])

    @property
    def interface(self) -> dict[str, Any] | None:
        """What `observation_row` and `environment_action` go by; None if nothing is to be done."""
        return self.metadata.get("interface")

    @property
    def is_discrete(self) -> bool:
        return self.metadata["actions"]["kind"] == "discrete"

    @property
    def has_critics(self) -> bool:
        """Whether `Episode.risk` can be asked."""
        return self.metadata["critics"] is not None

    def start(self, seed: int | None = None) -> "Episode":
        """A new episode with nothing spent; a `seed` makes its actions repeatable."""
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"start() takes a whole number that is not negative, not {seed!r}.")
        # A stream of its own: Gymnasium's environments draw from default_rng(seed)
        random = np.random.default_rng([secrets.randbits(63) if seed is None else seed, STREAM])
        account = self.limit, float(self.metadata["cost_discount"])
        return Episode(self, random, account, int(self.metadata["observation_size"]))

    def inputs(self, observation: np.ndarray, discount: Any, spent: Any) -> np.ndarray:
        """x = (s, g, y) for observations [..., obs]; `spent` in raw units."""
        seen = self._normalised(np.asarray(observation, np.float32))
        clip = np.float32(self.metadata["spent_clip"])
        limits = np.clip(np.asarray(spent, np.float32) / np.float32(self.limit), -clip, clip)
        account = np.stack(np.broadcast_arrays(np.asarray(discount, np.float32), limits), -1)
        return np.concatenate([seen, np.broadcast_to(account, (*seen.shape[:-1], 2))], -1)

    def _normalised(self, seen: np.ndarray) -> np.ndarray:
        if self.metadata["normaliser"] is None:
            return seen
        clip, floor = (np.float32(self.metadata["normaliser"][n]) for n in ("clip", "floor"))
        mean, squares, count = (self.arrays[name] for name in STATISTICS)
        variance = squares / count if count > 1 else np.ones_like(squares)
        return np.clip((seen - mean) / np.sqrt(variance + floor), -clip, clip)

    def outputs(self, observation: np.ndarray, discount: Any, spent: Any) -> dict[str, np.ndarray]:
        """The parameters of the action distribution: `logits`, or `mean` and `log_std`."""
        out = self._network("policy.network", self.inputs(observation, discount, spent))
        if self.is_discrete:
            return {"logits": out}
        floor = np.float32(self.metadata["log_std_floor"])
        log_std = np.maximum(self.arrays["policy.log_std"], floor)
        return {"mean": out, "log_std": np.broadcast_to(log_std, out.shape)}

    def risk(self, observation: Any, discount: Any, spent: Any, elapsed: Any = 0.0) -> np.ndarray:
        """Cantelli's bound on P(C > limit) from here on: the critics' estimate, no guarantee.

        E[C | x] = y + g V(x), E[C^2 | x] = y^2 + g V~(x), in units of the limit; with a dead zone d
        the same of clip((C - d) / (1 - d), 0, 1), undiscounted. `elapsed` is t / horizon.
        """
        if not self.has_critics:
            raise ValueError(f"{self.metadata['algorithm']} has no critics for this risk.")
        x = self.inputs(observation, discount, spent)
        if self.metadata["critics"]["time_feature"]:
            time = np.broadcast_to(np.asarray(elapsed, np.float32), x.shape[:-1])
            x = np.concatenate([x, time[..., None]], -1)
        value, square = (self._network("critics", x, critic)[..., 0] for critic in (0, 1))
        g = np.asarray(discount, np.float32)
        y = np.asarray(spent, np.float32) / np.float32(self.limit)
        value, dead_zone = np.maximum(value, 0), self.metadata["critics"]["dead_zone"]
        # Above the limit no shaped cost is to come, which is no good news.
        saturated = (y >= 1) & (dead_zone is not None)
        if dead_zone is not None:
            g, y = np.ones_like(g), np.clip((y - dead_zone) / (1 - dead_zone), 0, 1)
        mean = y + g * value
        variance = y**2 + g * square - mean**2
        both = np.where(variance > 0, variance + (1 - mean) ** 2, 1)
        cantelli = np.where(mean < 1, variance / both, 1.0)
        # Critics that contradict each other leave Markov's: E[R] / (1 - y), R the cost to come.
        markov = np.minimum(g * value / np.where(y < 1, 1 - y, 1), 1.0)
        markov = np.where((y > 1) | ((y == 1) & (value > 0)), 1.0, markov)
        return np.where(saturated, 1.0, np.where(variance > 0, cantelli, markov))

    def _network(self, name: str, x: np.ndarray, critic: int | None = None) -> np.ndarray:
        """A tanh network with a linear head; it reads as much of x as its first layer has rows."""
        layers = self.metadata["layers"]
        for layer in range(layers):
            weight, bias = (self.arrays[f"{name}.{part}[{layer}]"] for part in PARTS)
            if critic is not None:
                weight, bias = weight[critic], bias[critic]
            x = x[..., : weight.shape[0]] @ weight + bias
            x = np.tanh(x) if layer < layers - 1 else x
        return x


class Episode:
    """One episode: `act`, do it, `spend` its cost, and so on until the environment ends it. Its
    account, y_{t+1} = y_t + g_t c_t, is raw and in double precision, as in a trained run's handle,
    which derives from this one."""

    mistake: type[ValueError] = ValueError

    def __init__(self, policy: Any, random: Any, account: tuple[float, float], size: int):
        self._policy, self._random, self._size = policy, random, size
        self._limit, self._cost_discount = account
        self._time, self._spent, self._discount, self._has_acted = 0, 0.0, 1.0, False

    @property
    def spent(self) -> float:
        """The (discounted) cost of this episode so far, in raw units."""
        return self._spent

    @property
    def remaining(self) -> float:
        """What may still be spent before the limit is passed; negative once it has been."""
        return self._limit - self._spent

    def act(self, observation: Any, deterministic: bool = False) -> Any:
        """The action for this observation, as the environment takes it: its own of Gymnasium; else
        an int, or a vector that it clips to [-1, 1], after its noise if it has any."""
        if self._has_acted:
            raise self.mistake("act() was called twice; call spend(cost) of the first one before.")
        action = self._choose(self._checked(observation), deterministic)
        self._has_acted = True
        return environment_action(action, self._policy.interface)

    def _choose(self, seen: np.ndarray, deterministic: bool) -> int | np.ndarray:
        out = self._policy.outputs(seen, self._discount, self._spent)
        if self._policy.is_discrete:
            chances = probabilities(out["logits"])
            if deterministic:
                return int(chances.argmax())
            return int(self._random.choice(chances.size, p=chances))
        noise = 0 if deterministic else self._random.standard_normal(out["mean"].shape, np.float32)
        return out["mean"] + np.exp(out["log_std"]) * noise

    def spend(self, cost: float) -> None:
        """Enter the cost of the last action, 0 included."""
        if not self._has_acted:
            raise self.mistake("spend() was called without an action; call act(observation) first.")
        try:
            value = float(cost)
        except (TypeError, ValueError):
            value = np.nan
        if not np.isfinite(value):
            raise self.mistake(f"The cost of step {self._time} is no finite number: {cost!r}.")
        self._spent += self._discount * value
        self._discount *= self._cost_discount
        self._time, self._has_acted = self._time + 1, False

    def risk(self, observation: Any) -> float:
        """The critics' bound on the probability that this episode ends above the limit."""
        elapsed = self._time / self._policy.metadata["horizon"]
        seen = self._checked(observation)
        return float(self._policy.risk(seen, self._discount, self._spent, elapsed))

    def _checked(self, observation: Any) -> np.ndarray:
        try:
            seen = observation_row(observation, self._policy.interface)
        except ValueError as error:
            raise self.mistake(str(error)) from None
        if seen.shape != (self._size,):
            raise self.mistake(f"An observation has the shape ({self._size},), not {seen.shape}.")
        if not (finite := np.isfinite(seen)).all():
            raise self.mistake(f"The observation is not finite at index {int(finite.argmin())}.")
        return seen


def observation_row(observation: Any, interface: dict[str, Any] | None) -> np.ndarray:
    """What a policy sees of an observation of the environment: numbers as they are, counted ones
    one-hot, in the order that the metadata's `interface` states."""
    if interface is None:
        return _numbers(observation, "").astype(np.float32)
    rows = [_entries(observation, **entry) for entry in interface["observation"]]
    return np.concatenate(rows).astype(np.float32)


def _entries(seen: Any, path: list[Any], size: int, values: Any = None, **_: Any) -> np.ndarray:
    """Some entries of a row; `values` are first value and number of values of what is counted."""
    where = "".join(f"[{key!r}]" for key in path)
    try:
        for key in path:
            seen = seen[key]
    except (TypeError, LookupError):
        raise ValueError(f"An observation has no {where}, which the policy sees.") from None
    found = row = _numbers(seen, where).ravel()
    if values is not None and len(found) == len(values):
        pairs = zip(found, values, strict=True)
        row = np.concatenate([np.arange(count) == value - first for value, (first, count) in pairs])
        if row.sum() != len(values):
            raise ValueError(f"The observation{where} is {seen!r}, which its space has not.")
    if len(row) != size:
        expected = size if values is None else len(values)
        raise ValueError(f"The observation{where} has {len(found)} numbers, not {expected}.")
    return row


def _numbers(seen: Any, where: str) -> np.ndarray:
    try:
        return np.asarray(seen, float)
    except (TypeError, ValueError):
        raise ValueError(f"The observation{where} is not made of numbers: {seen!r}.") from None


def environment_action(action: Any, interface: dict[str, Any] | None) -> Any:
    """The action of the environment that an action of the policy stands for: counted from the
    first one on, or clipped to [-1, 1] and stretched to the bounds."""
    if interface is None:
        return action
    space, kind = interface["action"], np.dtype(interface["action"]["dtype"])
    if space["kind"] == "counted":
        return kind.type(int(action) + space["start"])
    low, high = np.asarray(space["low"], float), np.asarray(space["high"], float)
    stretched = (high + low) / 2 + (high - low) / 2 * np.clip(action, *space["clip"])
    return stretched.astype(kind).reshape(space["shape"])


def load(path: str | os.PathLike | BinaryIO, sha256: str | None = None) -> NumpyPolicy:
    """The policy in an .npz artefact (path or binary file), unless it was changed anywhere, or is
    another one than that of `sha256`, the digest that a certificate states."""
    name, data = _content(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            members = archive.zip.infolist()
            plain = {m.filename for m in members if m.compress_type == zipfile.ZIP_STORED}
            if not len(plain) == len(members) <= 1000:  # what is compressed could be of any size
                raise ValueError("it has members that no policy has")
            arrays = dict(archive)
        metadata = json.loads(arrays.pop("metadata").tobytes())
        if not isinstance(metadata, dict) or metadata.get("format") not in FORMATS:
            raise ValueError(f"it is of none of the formats {FORMATS}, which this version reads")
        policy = _checked_policy(metadata, arrays)
    except Exception as error:  # damage can fail anywhere in the readers of zip, numpy and JSON
        lacks = isinstance(error, KeyError)
        reason = f"it has no {error}" if lacks else str(error) or type(error).__name__
        what = f"is not an intact exported policy ({reason})"
        raise ValueError(f"{name} {what}; export it again.") from error
    if sha256 is not None and policy.sha256 != sha256:
        raise ValueError(f"{name} holds another policy than the one asked for: {policy.sha256}.")
    return policy


def read_checked(path: str | os.PathLike) -> bytes:
    """The content of an exported file of any format, if it has the digest in FILE.sha256."""
    (_, data), (_, note) = _content(path), _content(f"{os.fspath(path)}.sha256")
    if hashlib.sha256(data).hexdigest().encode() != note[:64]:
        raise ValueError(f"{path} is not what was exported: its digest differs; export it again.")
    return data


def _content(path: str | os.PathLike | BinaryIO) -> tuple[str, bytes]:
    """Name and bytes of a file of a bounded size."""
    try:
        if isinstance(path, str | os.PathLike):
            with open(path, "rb") as file:
                name, data = str(path), file.read(LARGEST_FILE + 1)
        else:
            name, data = "This file", cast(BinaryIO, path).read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"There is no policy {path} ({error}).") from None
    if len(data) > LARGEST_FILE:
        raise ValueError(f"{name} is larger than {LARGEST_FILE:,} bytes; no policy is.")
    return name, data


def _checked_policy(metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> NumpyPolicy:
    """Digests first: what passes them was written so, or made up by someone who can compute them."""
    stated, facts = metadata.pop("file_sha256"), {n: metadata[n] for n in metadata["facts"]}
    if digest(metadata, arrays) != stated or digest(facts, arrays) != metadata["policy_sha256"]:
        raise ValueError("its content does not match its digest")
    networks = ["policy.network", *([] if metadata["critics"] is None else ["critics"])]
    layers = range(min(int(metadata["layers"]), 100))
    parts = [f"{part}[{layer}]" for part in PARTS for layer in layers]
    expected = {f"{network}.{part}" for network in networks for part in parts}
    if metadata["normaliser"] is not None:
        expected |= set(STATISTICS)
    if metadata["actions"]["kind"] != "discrete":
        expected.add("policy.log_std")
    odd = {name for name, array in arrays.items() if array.dtype != np.float32}
    if odd := odd | (set(arrays) ^ expected):
        raise ValueError(f"it has other arrays than its metadata say: {sorted(odd)[:3]}")
    sums = [array.sum(dtype=float) for array in arrays.values()]
    numbers = [metadata["limit"], metadata["cost_discount"], *sums]
    if not (np.isfinite(numbers).all() and metadata["limit"] > 0):
        raise ValueError("it has numbers that are not finite, or no limit")
    policy = NumpyPolicy(metadata, arrays)
    nothing = np.zeros(int(metadata["observation_size"]), np.float32)
    policy.outputs(nothing, 1.0, 0.0)  # do the shapes fit together?
    if policy.has_critics:
        policy.risk(nothing, 1.0, 0.0)
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
    """softmax, in double precision so that it adds up to 1 for whoever draws from it."""
    shifted = np.exp(logits.astype(float) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
