"""PPO-Lagrangian: clipped updates on the reward minus a price for the constraint (Ray et al.,
2019).

    maximise J(pi)  subject to  K(pi) <= 1,           J(pi) - lambda (K(pi) - 1)

K is the constrained quantity in units of its allowed value. It is always the expectation of a sum
over the episode:

    Chance   K = P(C > l) / eps                          1 / eps for the step that takes the episode over the limit
    Mean     K = E[C] / l                                the cost
    CVaR     K = (eta + E[(C - eta)+] / eps) / l         (C - eta)+ / eps at the end, eta = min(VaR_eps(C), l) held fixed

So one critic gives its advantage A^K (`priced.expected_sum`), and the policy follows the reward
advantage minus the price times A^K (see `canary.algorithms.priced`). The price follows dual ascent
in its logarithm, with a proportional term against oscillation (Stooke et al., 2020).
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
            # A limit on a mean does not depend on the spent cost; the others do.
            observe_spent=set(task.kinds) != {"mean"} if observed is None else observed,
        )
        return clipped_algorithm(method, task, self.estimation, self.clipped)
