"""Gymnasium's spaces as plain data: what a network sees, and what its action means to the environment.

`export/numpy_policy.py` applies both with numpy alone, in training and in exported policies. Spaces
are recognised by the name of their class, so that those of older packages work too.
"""

from typing import Any

import numpy as np

from canary.errors import CanaryError


def describe_spaces(observation_space: Any, action_space: Any, label: str) -> dict[str, Any]:
    """`observation` lists where the entries of a row come from, in order; `action` says what becomes
    of a policy's action: the entries of a continuous one are clipped to [-1, 1] and stretched to
    the bounds of the Box."""
    kind = type(action_space).__name__
    dtype = np.dtype(getattr(action_space, "dtype", None) or np.int64)
    if kind == "Discrete":
        start = int(getattr(action_space, "start", 0))
        action: dict[str, Any] = {"kind": "counted", "start": start, "dtype": dtype.name}
        return {"observation": _entries(observation_space, [], label), "action": action}
    if kind != "Box" or not np.issubdtype(dtype, np.floating):
        raise CanaryError(
            f"The action space of {label} is {action_space}; canary acts in Discrete and real-valued "
            "Box spaces. Wrap the environment so that it has one of them."
        )
    low, high = (np.asarray(getattr(action_space, name), float).ravel() for name in ("low", "high"))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise CanaryError(
            f"The action space of {label} has no finite bounds, so [-1, 1] cannot be stretched to "
            "them; state them: gymnasium.wrappers.TransformAction(env, lambda action: action, "
            "gymnasium.spaces.Box(LOW, HIGH, env.action_space.shape)), with numbers of yours."
        )
    action = {"kind": "numbers", "clip": [-1.0, 1.0], "low": low.tolist(), "high": high.tolist()}
    action |= {"shape": list(action_space.shape), "dtype": dtype.name}
    action["rule"] = "(high + low) / 2 + (high - low) / 2 * clip(action, -1, 1)"
    return {"observation": _entries(observation_space, [], label), "action": action}


def _entries(space: Any, path: list[str | int], label: str) -> list[dict[str, Any]]:
    """The groups of a row's entries: `path` leads to each within an observation. A group is numbers
    as they are, or counted ones (first value and number of values each), which become one-hot."""
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
            nested = [_entries(part, [*path, key], label) for key, part in parts.items()]
            return [entry for entries in nested for entry in entries]
    raise CanaryError(
        f"canary cannot read an observation of {label} as numbers ({space}); flatten it: "
        "gymnasium.wrappers.FlattenObservation(env)."
    )
