"""PPO-Lagrangian: clipped updates on the reward minus a price for the constraint (Ray et al.,
2019).

    maximise J(pi)  subject to  K(pi) <= 1,           J(pi) - lambda (K(pi) - 1)

K is what the constraint limits, in units of what it allows, and always the expectation of a sum
over the episode:

    Chance   K = P(C > l) / eps                          1 / eps for the step that takes the episode over the limit
    Mean     K = E[C] / l                                the cost
    CVaR     K = (eta + E[(C - eta)+] / eps) / l         (C - eta)+ / eps at the end, eta = min(VaR_eps(C), l) held fixed

So one critic gives its advantage A^K (`priced.expected_sum`), and the policy follows the reward
minus the price of A^K (see `canary.algorithms.priced`): dual ascent in the logarithm of the price, with a proportional term
against oscillation (Stooke et al., 2020).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from canary.algorithms.base import Algorithm, EstimationConfig, Task
from canary.algorithms.clipped import ClippedConfig, clipped_algorithm
from canary.algorithms.priced import expected_sum, priced_method
from canary.constraints import Kind
from canary.values import Settings


@dataclass(frozen=True, kw_only=True)
class PPOLagrangianConfig(Settings):
    """Settings of PPO-Lagrangian."""

    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    clipped: ClippedConfig = field(default_factory=ClippedConfig)

    serves: ClassVar[tuple[Kind, ...]] = ("chance", "mean", "cvar")
    serves_several: ClassVar[bool] = True

    def make(self, task: Task) -> Algorithm:
        observed = self.estimation.observe_spent
        method = priced_method(
            task,
            self.estimation,
            partial(expected_sum, self.estimation),
            # A mean does not care what was spent before; a tail does.
            observe_spent=set(task.kinds) != {"mean"} if observed is None else observed,
        )
        return clipped_algorithm(method, task, self.estimation, self.clipped)
