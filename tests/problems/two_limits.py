"""The best return of the courier (examples/courier.py) under its two limits, by a linear program
over occupancy measures: an independent truth.

A state is (leg, weather, parcels damaged so far, at most `most`); what was burnt does not matter,
because a mean is linear in the occupancy x(leg, weather, damaged, action).
"""

import numpy as np
from examples.courier import DAMAGE, FUEL, REWARD, STORM
from scipy.optimize import linprog

LEGS, MOST = 20, 2


def best_return(
    *, epsilon: float | None, fuel: float | None, legs: int = LEGS, most: int = MOST
) -> tuple[float, np.ndarray]:
    """The best return with P(damaged > most) <= epsilon and mean fuel <= `fuel`, and its occupancy
    [leg, weather, damaged, action]; None: without that limit."""
    levels, actions = most + 2, len(REWARD)  # damaged = most + 1 stands for more than `most`
    shape = (legs, 2, levels, actions)
    place = np.arange(np.prod(shape)).reshape(shape)
    damage, storm = np.array(DAMAGE), np.array(STORM)
    flow = np.zeros((legs, 2, levels, place.size))
    over = np.zeros(place.size)
    for leg, weather, level, action in np.ndindex(*shape):
        index = place[leg, weather, level, action]
        flow[leg, weather, level, index] += 1
        for more, chance in ((1, damage[weather, action]), (0, 1 - damage[weather, action])):
            after = min(level + more, most + 1)
            if leg == legs - 1:
                over[index] += chance * (after > most)
                continue
            for next_weather, likely in ((1, storm[weather]), (0, 1 - storm[weather])):
                flow[leg + 1, next_weather, after, index] -= chance * likely
    start = np.zeros(flow.shape[:-1])
    start[0, 0, 0] = 1
    rows = [(over, epsilon), (np.broadcast_to(FUEL, shape).ravel(), fuel)]
    rows = [(row, limit) for row, limit in rows if limit is not None]
    found = linprog(
        -np.broadcast_to(REWARD, shape).ravel(),
        A_ub=np.array([row for row, _ in rows]) if rows else None,
        b_ub=[limit for _, limit in rows] if rows else None,
        A_eq=flow.reshape(-1, place.size),
        b_eq=start.ravel(),
    )
    return -found.fun, found.x.reshape(shape)
