"""A method of your own: a limit on the expected excess, E[(C - limit)+] <= epsilon * limit.

P(C > limit) counts all violations alike; here each counts by its size. The trust region needs the
excess at the present policy, and the advantage of a signal that sums to it over an episode. In units
of the limit, with y_t the cost spent so far, the signal is (y_{t+1} - 1)+ - (y_t - 1)+.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.nn import relu

import canary
import canary.algorithms.trust_region as engine
from canary.algorithms.advantages import cost_advantages, spent_after
from canary.numerics.costs import recent


@dataclass(frozen=True, kw_only=True)
class Excess(engine.TrustRegionSettings):
    def make(self, task):
        risk = engine.RiskConstraint(critics=1, estimate=self.estimate)
        return engine.trust_region_algorithm(risk, task, self)

    def estimate(self, batch, terms):
        rollout, lately = batch.rollout, recent(batch.window, self.estimation.window)
        excess = jnp.mean(relu(batch.window.cost / terms.limit - 1), where=lately)
        signal = relu(spent_after(rollout) - 1) - relu(rollout.spent - 1)
        advantage, target = cost_advantages(
            rollout, signal, batch.values[0], batch.next_values[0], discount=1.0, decay=0.95)  # fmt: skip
        return engine.RiskEstimate(
            advantage[None], target[None], bound=lambda change: excess - terms.epsilon + change,
            metrics={"mean_excess": excess})  # fmt: skip


if __name__ == "__main__":
    print(canary.train("IcyLake", algorithm=Excess, seeds=2).certify()["sentence"])
