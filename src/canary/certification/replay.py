"""Play the episodes of a certificate again, all of them or a random share, and compare their costs.

Episode j of a result has a key that depends on j alone, so any single episode can be played again.
Which ones are chosen is drawn afresh, so that nobody can know beforehand which episodes are safe to
invent. Of N episodes, k of them invented, n chosen ones miss all inventions with the probability
C(N - k, n) / C(N, n), about (1 - n / N)^k.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from canary.certification import order
from canary.certification.certify import Player, Subject, episode_rows, make_player
from canary.certification.plan import Plan
from canary.environments.failures import told_failures
from canary.errors import CanaryError
from canary.networks import Policy
from canary.numerics.running_statistics import RunningStatistics

FORGERIES = (1, 10, 100)


@dataclass(frozen=True)
class Replayed:
    """What playing the chosen episodes of one result again showed."""

    episodes: int
    """In the certificate."""
    played: int
    differing: int
    """Episodes whose cost is another one now."""
    same_means: bool | None
    """Whether mean return and length came out again; None if not all episodes were played."""


def choose(episodes: int, share: float, random: np.random.Generator) -> Int[np.ndarray, "chosen"]:
    """A random share of the numbers 0, ..., episodes - 1, at least one."""
    if not 0 < share <= 1:
        raise CanaryError(
            f"A share of the episodes is a number above 0 and at most 1, not {share!r}."
        )
    count = min(episodes, max(1, math.ceil(share * episodes)))
    return np.sort(random.choice(episodes, count, replace=False))


def escape_probability(episodes: int, played: int, forged: int) -> float:
    """The probability that `played` of all episodes, chosen at random, contain none of the `forged`
    ones."""
    if forged > episodes - played:
        return 0.0
    logs = (math.lgamma(episodes - forged + 1), math.lgamma(episodes - played + 1))
    rest = math.lgamma(episodes - forged - played + 1) + math.lgamma(episodes + 1)
    return min(1.0, math.exp(sum(logs) - rest))


def replay(
    subject: Subject,
    policy: Policy,
    statistics: RunningStatistics | None,
    evidence: dict[str, Any],
    plan: Plan,
    *,
    key: PRNGKeyArray,
    chosen: Int[np.ndarray, "chosen"],
    player: Player | None = None,
) -> Replayed:
    """Play the chosen episodes of a result again; batches have the size of the first time, which
    rounding needs."""
    play = player or make_player(subject, plan)
    counts = [count for _, count in evidence["costs"]]
    listed = np.array([value for value, _ in evidence["costs"]], float)[
        order.decode(evidence["order"], counts)
    ]
    tables = []
    for start in range(0, len(chosen), plan.batch):
        numbers = chosen[start : start + plan.batch]
        filled = np.resize(numbers, plan.batch).astype(np.int32)
        with told_failures(subject.environment):
            ends = jax.device_get(play(policy, statistics, key, jnp.asarray(filled)))
        tables.append(episode_rows(ends)[: len(numbers)])
    table = np.concatenate(tables)
    is_whole = len(chosen) == len(listed)
    means = tuple(float(table[:, column].mean()) for column in (1, 2))
    return Replayed(
        episodes=len(listed),
        played=len(chosen),
        differing=int((table[:, 0] != listed[chosen]).sum()),
        same_means=means == (evidence["return_mean"], evidence["length_mean"])
        if is_whole
        else None,
    )


def replay_words(found: list[Replayed]) -> list[str]:
    """What a replay without a difference has shown."""
    episodes, played = (sum(getattr(one, name) for one in found) for name in ("episodes", "played"))
    if episodes == played:
        return [
            f"It was replayed: all {episodes:,} episodes, played again here, had the costs that it "
            "lists."
        ]
    chances = [
        f"{escape_probability(episodes, played, k):.2g} for {k}" for k in FORGERIES if k <= episodes
    ]
    return [
        f"It was replayed in part: {played:,} of {episodes:,} episodes, drawn at random and played "
        "again here, had the costs that it lists. Invented episodes would have escaped with "
        f"probability {', '.join(chances)} of them."
    ]
