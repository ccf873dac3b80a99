"""Whole episodes of the trained policies, recorded when training ends: a changed environment shows
in them.

`record_episodes` plays a few episodes of every stored policy and writes their costs, returns and
lengths to RUN/reference.json, with the hash of the file that defines the environment.
`check_environment` plays them again. Environments of canary's own are not recorded: the version of
the package says what they do. An environment that behaves differently when it is watched passes.
"""

import contextlib
import hashlib
import inspect
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from canary.config.config import RunConfig
from canary.config.sources import source_of
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.opening import is_ours
from canary.runs.policies import EvaluationPlan, FrozenPolicies, load_policies, play
from canary.runs.stored_states import stored_updates

NAME = "reference.json"
EPISODES, EVALUATION_SEED = 8, 0x726566  # "ref"
TOLERANCE = 1e-3  # relative: machines round differently


@dataclass(frozen=True)
class EnvironmentCheck:
    """Whether the environment was compared with that of training, and what came out."""

    compared: bool
    sentence: str
    changes: tuple[str, ...] = ()
    source: dict[str, str] | None = None
    """Name and SHA-256 of the file that defines the environment; None for canary's own."""


def record_episodes(run: Path, config: RunConfig) -> None:
    """Play and store episodes of every stored policy that has none yet."""
    if is_ours(config.environment):
        return
    known = _stored(run).get("states", {})
    states = {}
    for update in sorted(stored_updates(run)):
        # A policy that cannot be played gets no certificate either; training is over all the same
        with contextlib.suppress(CanaryError):
            policies = load_policies(config, run, update * config.training.batch)
            found = known.get(str(update)) or _play(policies, config.training.seeds)
            states[str(update)] = found
    source = source_file(config.environment)
    files.write_json(run / NAME, {"source": source, "made_by": _made_by(), "states": states})


def check_environment(
    run: Path, policies: FrozenPolicies, seeds: tuple[int, ...]
) -> EnvironmentCheck:
    """Play the recorded episodes of these policies again and compare."""
    environment = policies.config.environment
    if policies.config.environment_changes:
        return EnvironmentCheck(True, "It differs from that of training; the change was accepted.")
    if is_ours(environment):
        return EnvironmentCheck(True, "It is one of canary's own, with the settings of training.")
    source, stored = source_file(environment), _stored(run)
    found = _play(policies, seeds)
    if found != _play(policies, seeds):
        return _not_compared("it has randomness of its own, which no key determines", source)
    expected = stored.get("states", {}).get(str(policies.iteration), {})
    if not all(str(seed) in expected for seed in seeds):
        return _not_compared("no episodes of this policy were recorded after training", source)
    different = [
        f"episode {number} of seed {seed} has {name} {now:g} here and had {before:g}"
        for seed in seeds
        for number, (row, was) in enumerate(
            zip(found[str(seed)], expected[str(seed)], strict=True), 1
        )
        for name, now, before in zip(("cost", "return", "length"), row, was, strict=True)
        if not np.isclose(now, before, rtol=TOLERANCE, atol=TOLERANCE)
    ]
    if different and stored["made_by"] != _made_by():
        return _not_compared("training used other versions, which may round differently", source)
    if different:
        return EnvironmentCheck(True, f"It has changed: {different[0]}.", (different[0],), source)
    sentence = f"{EPISODES} whole episodes of each policy came out as they did after training."
    if source != stored["source"]:
        sentence += " The file that defines it has changed since."
    return EnvironmentCheck(True, sentence, (), source)


def source_file(environment: Environment) -> dict[str, str] | None:
    """Name and SHA-256 of the file that defines an environment; None if it is not known."""
    source, name = source_of(environment), type(environment).__module__
    if source is not None:
        name = source.name.removeprefix(f"{source.adapter}:").rpartition(":")[0]
    if name not in sys.modules or name.partition(".")[0] == "canary":
        return None
    try:
        path = Path(inspect.getsourcefile(sys.modules[name]) or "")
        return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    except (OSError, TypeError):
        return None


def _not_compared(why: str, source: dict[str, str] | None) -> EnvironmentCheck:
    return EnvironmentCheck(False, f"It could not be compared: {why}.", (), source)


def _play(policies: FrozenPolicies, seeds: tuple[int, ...]) -> dict[str, list[list[float]]]:
    """Cost, return and length of each episode, by seed."""
    plan = EvaluationPlan(episodes=EPISODES, seeds=seeds, evaluation_seed=EVALUATION_SEED)
    table, _ = play(policies, plan)
    columns = ["cost", "return", "length"]
    return {
        str(seed): [[float(value) for value in row] for row in part.select(columns).rows()]
        for (seed,), part in table.partition_by("seed", as_dict=True).items()
    }


def _stored(run: Path) -> dict[str, Any]:
    return files.read_json(run / NAME) if (run / NAME).is_file() else {}


def _made_by() -> dict[str, str]:
    return {"jax": jax.__version__, "machine": platform.machine()}
