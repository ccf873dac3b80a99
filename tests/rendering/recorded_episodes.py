"""Recorded episodes: of a run, and two that were never played, over IcyLake and through PointGoal."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np

from canary.environments.icy_lake import IcyLake
from canary.environments.protocol import EnvironmentState
from canary.rendering.panel import RecordedEpisode
from canary.rendering.run import filming_player, recorded
from canary.runs.policies import EvaluationPlan, play

LAKE = IcyLake(map="SFF/FHF/FFG", horizon=12)


def episode(inner, cost, **choices) -> RecordedEpisode:
    """States around `inner`, with the cost of each step (0 first)."""
    cost = np.asarray(cost, np.float32)
    count, no = len(cost), np.zeros(len(cost), bool)
    states = EnvironmentState(
        inner=inner,
        observation=jnp.zeros((count, 1)),
        reward=jnp.zeros(count),
        cost=jnp.asarray(cost),
        terminated=jnp.asarray(no),
        truncated=jnp.arange(count) == count - 1,
        time=jnp.arange(count),
    )
    facts = {"caption": "median", "seed": 0, "number": 4} | choices
    reward = np.zeros(count, np.float32)
    return RecordedEpisode(states=states, spent=np.cumsum(cost), reward=reward, **facts)


def lake_walk(positions, **choices) -> RecordedEpisode:
    positions = np.asarray(positions)
    cost = LAKE.ice[positions].astype(np.float32)
    return episode(positions, cost, **choices)


def drive(positions, cost) -> RecordedEpisode:
    positions = np.asarray(positions, np.float32)
    count = len(positions)
    hazards = np.array(
        [[1, 1], [-1, 1], [1, -1], [-1, -1], [0, 1.2], [0, -1.2], [1.2, 0], [-1.2, 0]], np.float32
    )
    robot = SimpleNamespace(position=positions, heading=np.zeros(count, np.float32))
    inner = SimpleNamespace(
        robot=robot,
        goal=np.tile(np.array([0.5, 0.6], np.float32), (count, 1)),
        hazards=np.tile(hazards, (count, 1, 1)),
        vase=np.tile(np.array([-0.5, 0.5], np.float32), (count, 1)),
    )
    return episode(inner, cost)


def record_rows(policies, plan: EvaluationPlan, numbers: list[int]):
    """Some rows of an evaluation, each with its recorded episode."""
    player = filming_player(policies, plan)
    table, _ = play(policies, plan, program=player)
    rows = [table.row(number, named=True) for number in numbers]
    return [(row, recorded(policies, plan, row, "median", player)) for row in rows]
