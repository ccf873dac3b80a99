"""The best policy when the episode is charged once, at its end, for what it has cost.

For a weight w on the return and a penalty phi on the cost, dynamic programming over (time, state, spent),

    V_t(s, k) = max_a E[w r + V_{t+1}(s', k + c)],        V_t(terminal, k) = V_H(s, k) = -phi(k),

finds the maximum of w J(pi) - E_pi[phi(C)] over all policies, history-dependent and randomised ones
included. Every constraint in this package bounds E[phi(C)] for some phi, so nothing else here optimises
policies.
"""

import numpy as np
from jaxtyping import Float, Int

from canary.exact.mdp import FiniteMDP


def best_response(
    mdp: FiniteMDP, penalty: Float[np.ndarray, "spent"], reward_weight: float = 1.0
) -> tuple[float, Int[np.ndarray, "time state spent"]]:
    """The optimal value and a deterministic policy that attains it (the first of equally good actions).

    Levels that cannot have been reached yet at some time hold action 0 there.
    """
    actions = np.zeros((mdp.horizon, mdp.states, len(mdp.support)), np.int16)
    reward = reward_weight * mdp.expected_reward[:, :, None]
    value = np.broadcast_to(-penalty, (mdp.states, len(penalty)))
    for time in reversed(range(mdp.horizon)):
        levels = mdp.levels_at(time)
        after = np.concatenate([value[:, step : step + levels] for step in mdp.steps_of_cost])
        choices = (mdp.kernel @ after).reshape(mdp.states, mdp.actions, levels) + reward
        actions[time, :, :levels] = choices.argmax(axis=1)
        value = np.where(mdp.terminal[:, None], -penalty[:levels], choices.max(axis=1))
    return float(mdp.initial @ value[:, 0]), actions
