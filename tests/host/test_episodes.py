"""Episodes as functions of a seed and actions: what cannot be replayed is reported.

That replayed episodes continue with the same bits is tested in `runs/test_host_runs.py`.
"""

import numpy as np

from canary.host.episodes import Episodes
from canary.host.player import Player, Recipe
from problems.host_environments import Walk

IDENTITY = np.array([[3, 1], [4, 1]], np.uint32)
ACTION = np.zeros((2, 2), np.float32)


class Restless(Walk):
    """Ends at a step that no seed decides: earlier each time it is reset."""

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.time == 10 // self.resets, False, info


def test_episodes_that_end_earlier_the_second_time_cannot_be_brought_back():
    recipe = Recipe(Restless, {"noise": 0.0, "drift": 0.0}, "info:cost", 50)
    live = Episodes(recipe, Player(recipe), 2, 0)
    live.start(live.everyone, IDENTITY)
    for _ in range(8):
        live.step(slice(None), ACTION, 1.0)
    stored = [each.copy() for each in (live.identity, live.steps, live.actions, live.table)]
    assert live.take_up(*stored).all()
    live.start(live.everyone, IDENTITY + 1)
    assert not live.take_up(*stored).any()
