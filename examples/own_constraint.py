"""A method of your own: a limit on the expected excess, E[(C - limit)+] <= epsilon * limit.

P(C > limit) counts all violations alike; here each counts by its size. The trust region needs the
quantity at the present policy, and a signal per step that sums to it over an episode. In units of
the limit, with y_t the cost spent so far, that is (y_{t+1} - 1)+ - (y_t - 1)+.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.nn import relu

import canary
from canary.algorithms.cpo import CPOConfig
from canary.algorithms.signals import cost_advantages, spent_after
from canary.algorithms.trust_region import RiskConstraint, RiskEstimate, trust_region_algorithm
from canary.numerics.moments import cost_moments, recent


@dataclass(frozen=True, kw_only=True)
class Excess(CPOConfig):  # the settings of CPO
    def make(self, task):
        risk = RiskConstraint(critics=1, estimate=self.estimate)
        return trust_region_algorithm(risk, task, self.estimation, self.trust_region, self.critic)

    def estimate(self, seen):
        rollout, window, terms, span = seen.rollout, seen.window, seen.terms, self.estimation.window
        signal, critic = relu(spent_after(rollout) - 1) - relu(rollout.spent - 1), seen.values[0]
        advantage, target = cost_advantages(
            rollout, signal, critic, seen.next_values[0], discount=1.0, decay=0.95)  # fmt: skip
        value = jnp.mean(relu(window.cost / terms.limit - 1), where=recent(window, span))
        return RiskEstimate(
            advantages=advantage[None], targets=target[None], weight=jnp.ones_like(critic),
            length=cost_moments(window, span, terms.limit).length, metrics={"mean_excess": value},
            bound=lambda change: value - terms.epsilon + change)  # fmt: skip


if __name__ == "__main__":
    print(canary.train("IcyLake", algorithm=Excess, seeds=2).certify()["sentence"])
