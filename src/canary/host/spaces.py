"""Gymnasium's spaces as vectors: what a network sees, and what its action means to the environment.

Spaces are recognised by the name of their class, so that those of older packages work too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from canary.errors import CanaryError

Encoder = Callable[[Sequence[Any]], np.ndarray]


def observation_encoder(space: Any, label: str) -> tuple[Encoder, int, bool]:
    """Observations to float32 rows, the size of a row, and whether its entries have physical units.

    All lanes are encoded together: a small array takes as long to convert as a small step.
    """
    kind = type(space).__name__
    if kind == "Box":
        return (
            lambda values: np.array(values, np.float32).reshape(len(values), -1),
            int(np.prod(space.shape)),
            True,
        )
    if kind == "Discrete":
        one_hot, first = np.eye(int(space.n), dtype=np.float32), int(getattr(space, "start", 0))
        return (
            lambda values: one_hot[[int(value) - first for value in values]],
            int(space.n),
            False,
        )
    try:
        from gymnasium.spaces.utils import flatdim, flatten

        size = int(flatdim(space))
    except Exception as error:
        raise CanaryError(
            f"The observation space of {label} ({space}) has no vector of fixed size; wrap the "
            "environment so that it has a Box or a Discrete one."
        ) from error
    return (
        lambda values: np.array([flatten(space, value) for value in values], np.float32),
        size,
        True,
    )


def action_decoder(
    space: Any, label: str
) -> tuple[Callable[[np.ndarray], Sequence[Any]], int, int | None]:
    """Action rows to the environments' actions, a row's size, and how many actions there are if
    they are counted.

    The entries of a continuous action are clipped to [-1, 1] and stretched to the bounds of the
    Box.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        first, whole = int(getattr(space, "start", 0)), np.dtype(getattr(space, "dtype", np.int64))
        # Of the type that the space itself samples, which its own check is quickest with.
        return lambda rows: list(rows[:, 0].astype(whole) + whole.type(first)), 1, int(space.n)
    if kind != "Box" or not np.issubdtype(space.dtype, np.floating):
        raise CanaryError(
            f"The action space of {label} is {space}; canary acts in Discrete and real-valued Box "
            "spaces. Wrap the environment so that it has one of them."
        )
    low, high = (
        np.asarray(space.low, np.float64).ravel(),
        np.asarray(space.high, np.float64).ravel(),
    )
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise CanaryError(
            f"The action space of {label} has no finite bounds, so [-1, 1] cannot be stretched to "
            "them; state them: gymnasium.wrappers.TransformAction(env, lambda action: action, "
            "gymnasium.spaces.Box(LOW, HIGH, env.action_space.shape)), with numbers of yours."
        )
    middle, half, shape, dtype = (high + low) / 2, (high - low) / 2, space.shape, space.dtype

    def decode(rows: np.ndarray) -> Sequence[Any]:
        # Of all lanes at once: a clip takes as long as a small step
        stretched = middle + half * np.clip(rows, -1.0, 1.0)
        return list(stretched.astype(dtype).reshape(-1, *shape))

    return decode, len(low), None


def describe_spaces(observation_space: Any, action_space: Any) -> dict[str, Any]:
    """Both maps of this module as plain data, for exported policies.

    `observation` lists where the entries of a row come from, in order; `action` says what becomes
    of a policy's action. `export/numpy_policy.py` applies both with numpy alone.
    """
    dtype = np.dtype(getattr(action_space, "dtype", None) or np.int64).name
    if type(action_space).__name__ == "Discrete":
        start = int(getattr(action_space, "start", 0))
        action: dict[str, Any] = {"kind": "counted", "start": start, "dtype": dtype}
    else:
        bounds = (np.asarray(getattr(action_space, name), float) for name in ("low", "high"))
        low, high = (each.ravel().tolist() for each in bounds)
        action = {"kind": "numbers", "clip": [-1.0, 1.0], "low": low, "high": high}
        action |= {"shape": list(action_space.shape), "dtype": dtype}
        action["rule"] = "(high + low) / 2 + (high - low) / 2 * clip(action, -1, 1)"
    return {"observation": _entries(observation_space, []), "action": action}


def _entries(space: Any, path: list[str | int]) -> list[dict[str, Any]]:
    """The groups of a row's entries: `path` leads to each within an observation. A group is
    numbers as they are, counted ones (first value and number of values each), one-hot, or what
    Gymnasium makes of a space of another kind."""
    kinds = {kind.__name__ for kind in type(space).__mro__}
    if kinds & {"Box", "MultiBinary"}:
        return [{"path": path, "kind": "numbers", "size": int(np.prod(space.shape))}]
    if kinds & {"Discrete", "MultiDiscrete"}:
        counts = np.ravel(space.n if "Discrete" in kinds else space.nvec).astype(int)
        starts = np.broadcast_to(np.ravel(getattr(space, "start", 0)), counts.shape).astype(int)
        values = [list(pair) for pair in zip(starts.tolist(), counts.tolist(), strict=True)]
        return [{"path": path, "kind": "counted", "values": values, "size": int(counts.sum())}]
    if kinds & {"Dict", "Tuple"}:
        parts = dict(space.spaces if "Dict" in kinds else enumerate(space.spaces))
        if all(isinstance(key, str | int) for key in parts):
            nested = [_entries(part, [*path, key]) for key, part in parts.items()]
            return [entry for entries in nested for entry in entries]
    from gymnasium.spaces.utils import flatdim

    by = "gymnasium.spaces.utils.flatten"
    return [{"path": path, "kind": "flattened", "by": by, "size": int(flatdim(space))}]
