"""Act with an exported policy; needs numpy and nothing else, so this one file can be copied
anywhere.

    policy = load("policy.npz")
    episode = policy.start(seed=0)
    action = episode.act(observation)      # then, after the step:
    episode.spend(cost)
    episode.spent, episode.remaining

A policy sees x = (s, g, y): besides the observation, the cost discount and the cost spent so far in
this episode, in units of the limit. An `Episode` keeps that account. It has the distribution of the
JAX handle, not its random numbers: the most likely actions agree, sampled ones agree in law.

A file that was changed anywhere is refused: it states the digest of all that it holds, and that of
the policy (`policy.sha256`), which certificates and the run state too. `load(path, sha256=...)`
accepts one policy only.
"""

import hashlib
import io
import json
import math
import os
import secrets
import zipfile
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, BinaryIO, cast

import numpy as np

FORMAT, LARGEST_FILE = 2, 1 << 30


@dataclass(frozen=True, eq=False)
class NumpyPolicy:
    """A frozen policy: its arrays by name, and everything that is known about it."""

    metadata: dict[str, Any]
    """Limit, epsilon, cost discount, environment and its settings, action space, layers, digests,
    origin."""
    arrays: dict[str, np.ndarray] = field(repr=False)

    @property
    def limit(self) -> float:
        return float(self.metadata["limit"])

    @property
    def sha256(self) -> str:
        """The digest of everything that determines how the policy behaves, as in certificates."""
        return str(self.metadata["policy_sha256"])

    @property
    def is_discrete(self) -> bool:
        return self.metadata["actions"]["kind"] == "discrete"

    @property
    def has_critics(self) -> bool:
        """Whether `Episode.risk` can be asked."""
        return self.metadata["critics"] is not None

    def start(self, seed: int | None = None) -> "Episode":
        """A new episode with nothing spent; `seed` (a whole number) makes its actions
        repeatable."""
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"start() takes a whole number that is not negative, not {seed!r}.")
        random = np.random.default_rng(secrets.randbits(63) if seed is None else seed)
        account = self.limit, float(self.metadata["cost_discount"])
        return Episode(self, random, account, int(self.metadata["observation_size"]))

    def inputs(self, observation: np.ndarray, discount: Any, spent: Any) -> np.ndarray:
        """x = (s, g, y) for observations [..., obs]; `spent` in raw units."""
        seen = np.asarray(observation, np.float32)
        if self.metadata["normaliser"] is not None:
            mean, squares, count = (
                self.arrays[f"statistics.{n}"] for n in ("mean", "squares", "count")
            )
            variance = (
                squares / np.maximum(count, np.float32(1)) if count > 1 else np.ones_like(squares)
            )
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
        log_std = np.maximum(
            self.arrays["policy.log_std"], np.float32(self.metadata["log_std_floor"])
        )
        return {"mean": out, "log_std": np.broadcast_to(log_std, out.shape)}

    def risk(
        self, observation: np.ndarray, discount: Any, spent: Any, elapsed: Any = 0.0
    ) -> np.ndarray:
        """Cantelli's bound on P(C > limit) given where the episode is: the critics' estimate, no
        guarantee.

        E[C | x] = y + g V(x), E[C^2 | x] = y^2 + g V~(x), in units of the limit; with a dead zone d
        the same of clip((C - d) / (1 - d), 0, 1), undiscounted. `elapsed` is t / horizon.
        """
        if not self.has_critics:
            raise ValueError(
                f"{self.metadata['algorithm']} has no critics that estimate this risk."
            )
        x = self.inputs(observation, discount, spent)
        if self.metadata["critics"]["time_feature"]:
            time = np.broadcast_to(np.asarray(elapsed, np.float32), x.shape[:-1])
            x = np.concatenate([x, time[..., None]], -1)
        value, square = (self._network("critics", x, critic)[..., 0] for critic in (0, 1))
        g, y = (
            np.asarray(discount, np.float32),
            np.asarray(spent, np.float32) / np.float32(self.limit),
        )
        value, dead_zone = np.maximum(value, 0), self.metadata["critics"]["dead_zone"]
        saturated = (y >= 1) & (
            dead_zone is not None
        )  # no shaped cost is to come, which is no good news
        if dead_zone is not None:
            g, y = np.ones_like(g), np.clip((y - dead_zone) / (1 - dead_zone), 0, 1)
        mean = y + g * value
        variance = y**2 + g * square - mean**2
        cantelli = np.where(
            mean < 1, variance / np.where(variance > 0, variance + (1 - mean) ** 2, 1), 1.0
        )
        # Critics that contradict each other leave Markov's bound: E[R] / (1 - y), R the cost to
        # come.
        markov = np.minimum(g * value / np.where(y < 1, 1 - y, 1), 1.0)
        markov = np.where((y > 1) | ((y == 1) & (value > 0)), 1.0, markov)
        return np.where(saturated, 1.0, np.where(variance > 0, cantelli, markov))

    def _network(self, name: str, x: np.ndarray, critic: int | None = None) -> np.ndarray:
        """A tanh network with a linear head; it reads as many entries of x as its first layer has
        rows."""
        layers = self.metadata["layers"]
        for layer in range(layers):
            weight, bias = (
                self.arrays[f"{name}.weights[{layer}]"],
                self.arrays[f"{name}.biases[{layer}]"],
            )
            if critic is not None:
                weight, bias = weight[critic], bias[critic]
            x = x[..., : weight.shape[0]] @ weight + bias
            x = np.tanh(x) if layer < layers - 1 else x
        return x


class Episode:
    """One episode: `act`, do it, `spend` its cost, and so on until the environment ends it. The
    handle of a trained run derives from this one, so that both keep the same account: y_{t+1} = y_t
    + g_t c_t, raw and in double precision."""

    mistake: type[ValueError] = ValueError

    def __init__(
        self, policy: Any, random: Any, account: tuple[float, float], observation_size: int
    ):
        self._policy, self._random, self._size = policy, random, observation_size
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

    def act(self, observation: Any, deterministic: bool = False) -> int | np.ndarray:
        """The action for this observation: an int, or a vector, as it went to the environment in
        training.

        The environment clips a vector to [-1, 1], after its own noise if it has any; so must a
        machine in its place.
        """
        if self._has_acted:
            raise self.mistake(
                "act() was called twice; call spend(cost) with the cost of the first before."
            )
        action = self._choose(self._checked(observation), deterministic)
        self._has_acted = True
        return action

    def _choose(self, seen: np.ndarray, deterministic: bool) -> int | np.ndarray:
        out = self._policy.outputs(seen, self._discount, self._spent)
        if self._policy.is_discrete:
            chances = probabilities(out["logits"])
            return int(
                chances.argmax() if deterministic else self._random.choice(chances.size, p=chances)
            )
        noise = 0 if deterministic else self._random.standard_normal(out["mean"].shape, np.float32)
        return out["mean"] + np.exp(out["log_std"]) * noise

    def spend(self, cost: float) -> None:
        """Enter the cost of the last action, 0 included."""
        if not self._has_acted:
            raise self.mistake(
                "spend() was called without an action before; call act(observation) first."
            )
        try:
            value = float(cost)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise self.mistake(
                f"A step's cost must be a finite number, not {cost!r} (step {self._time})."
            )
        self._spent += self._discount * value
        self._discount *= self._cost_discount
        self._time, self._has_acted = self._time + 1, False

    def risk(self, observation: Any) -> float:
        """The critics' bound on the probability that this episode ends above the limit, as it
        stands now."""
        elapsed = self._time / self._policy.metadata["horizon"]
        seen = self._checked(observation)
        return float(self._policy.risk(seen, self._discount, self._spent, elapsed))

    def _checked(self, observation: Any) -> np.ndarray:
        size = self._size
        try:
            seen = np.asarray(observation, np.float32)
        except (TypeError, ValueError):
            raise self.mistake(
                f"An observation must be {size} numbers, not {observation!r}."
            ) from None
        if seen.shape != (size,):
            raise self.mistake(f"An observation must have the shape ({size},), not {seen.shape}.")
        if not np.isfinite(seen).all():
            raise self.mistake(
                f"The observation is not finite at index {int(np.argmin(np.isfinite(seen)))}."
            )
        return seen


def load(path: str | PathLike | BinaryIO, sha256: str | None = None) -> NumpyPolicy:
    """The policy in an .npz artefact (a path or a binary file); what is damaged or was changed is
    refused.

    With `sha256`, the digest that a certificate states, any other policy is refused too.
    """
    name, data = _content(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if len(archive.namelist()) > 1000 or len(set(archive.namelist())) < len(
                archive.namelist()
            ):
                raise ValueError("it has members that no policy has")
            members = {member.filename[:-4]: member for member in archive.infolist()}
            arrays = {name: _array(archive, member) for name, member in members.items()}
        metadata = json.loads(arrays.pop("metadata").tobytes())
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}, the one that this version reads")
        _check(metadata, arrays)
    except (
        Exception
    ) as error:  # a damaged archive can fail anywhere in the readers of zip, numpy and JSON
        reason = (
            f"it has no {error}"
            if isinstance(error, KeyError)
            else str(error) or type(error).__name__
        )
        raise ValueError(
            f"{name} is not an intact exported policy ({reason}); export it again."
        ) from error
    if sha256 is not None and metadata["policy_sha256"] != sha256:
        raise ValueError(
            f"{name} holds another policy than the one asked for: {metadata['policy_sha256']}."
        )
    return NumpyPolicy(metadata, arrays)


def read_checked(path: str | PathLike) -> bytes:
    """The content of an exported file of any format, if it has the digest that stands in
    FILE.sha256 beside it."""
    (_, data), (_, note) = _content(path), _content(f"{os.fspath(path)}.sha256")
    if hashlib.sha256(data).hexdigest().encode() != note[:64]:
        raise ValueError(
            f"{path} is not the file that was exported: its digest differs; export it again."
        )
    return data


def _content(path: str | PathLike | BinaryIO) -> tuple[str, bytes]:
    """Name and bytes of a file of a bounded size."""
    try:
        if isinstance(path, str | PathLike):
            with open(path, "rb") as file:
                name, data = str(path), file.read(LARGEST_FILE + 1)
        else:
            name, data = "This file", cast(BinaryIO, path).read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"There is no policy {path} ({error}).") from None
    if len(data) > LARGEST_FILE:
        raise ValueError(f"{name} is larger than {LARGEST_FILE:,} bytes; no policy is.")
    return name, data


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array, its checksum verified; it takes no more memory than the file has bytes."""
    if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(".npy"):
        raise ValueError(f"{member.filename} is not a plain array")
    data = archive.read(member)
    buffer = io.BytesIO(data)
    if np.lib.format.read_magic(buffer) != (1, 0):
        raise ValueError(f"{member.filename} has an unknown array format")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(buffer)
    if (
        dtype not in (np.float32, np.uint8)
        or math.prod(shape) * dtype.itemsize != len(data) - buffer.tell()
    ):
        raise ValueError(f"{member.filename} is not an array of a policy")
    return np.ndarray(
        shape, dtype, data, offset=buffer.tell(), order="F" if fortran_order else "C"
    ).copy()


def _check(metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Digests first: whatever passes them is as it was written, or was made up by someone who can
    compute them."""
    stated, facts = (
        metadata.pop("file_sha256"),
        {name: metadata[name] for name in metadata["facts"]},
    )
    if digest(metadata, arrays) != stated or digest(facts, arrays) != metadata["policy_sha256"]:
        raise ValueError("its content does not match its digest")
    layers, expected = min(int(metadata["layers"]), 100), set()
    for network in (
        ("policy.network",) if metadata["critics"] is None else ("policy.network", "critics")
    ):
        expected |= {
            f"{network}.{part}[{layer}]"
            for part in ("weights", "biases")
            for layer in range(layers)
        }
    if metadata["normaliser"] is not None:
        expected |= {f"statistics.{name}" for name in ("mean", "squares", "count")}
    if metadata["actions"]["kind"] != "discrete":
        expected.add("policy.log_std")
    if set(arrays) != expected:
        raise ValueError(
            f"it has other arrays than its metadata say: {sorted(set(arrays) ^ expected)[:3]}"
        )
    numbers = [
        metadata["limit"],
        metadata["cost_discount"],
        *(a.sum(dtype=float) for a in arrays.values()),
    ]
    if not (np.isfinite(numbers).all() and metadata["limit"] > 0):
        raise ValueError("it has numbers that are not finite, or no limit")
    policy, nothing = (
        NumpyPolicy(metadata, arrays),
        np.zeros(int(metadata["observation_size"]), np.float32),
    )
    policy.outputs(nothing, 1.0, 0.0)  # do the shapes fit together?
    if policy.has_critics:
        policy.risk(nothing, 1.0, 0.0)


def digest(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of the facts as JSON (sorted keys, no spaces), then of every array: name, type, shape
    and bytes."""
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
