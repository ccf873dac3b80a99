"""A constraint of your own on the shared trust-region update: a limit on the expected excess.

    python examples/own_constraint.py

    maximise J(pi)  subject to  E[(C - limit)+] <= epsilon limit

A violation counts by its size here, where P(C > limit) counts all alike. The update needs three
things of a constraint: a signal per step whose sum over an episode is the quantity, its value at
the present policy, and what it becomes when the signal changes. Steps that take the spent cost y
further above the limit pay, in units of the limit:

    signal_t = (y_{t+1} - 1)+ - (y_t - 1)+         sum_t signal_t = (C - 1)+
"""

from dataclasses import dataclass

import jax.numpy as jnp

import canary
from canary.algorithms import ALGORITHMS
from canary.algorithms.cpo import CPOConfig
from canary.algorithms.signals import cost_advantages, spent_after
from canary.algorithms.trust_region import RiskConstraint, RiskEstimate, trust_region_algorithm
from canary.numerics.moments import cost_moments, recent


def excess(spent):
    """How far a cost is above the limit, both in units of the limit."""
    return jnp.maximum(spent - 1, 0)


@dataclass(frozen=True, kw_only=True)
class ExcessConfig(CPOConfig):
    """Settings of the shared update; the presets know them as CPO's."""

    def make(self, task):
        risk = RiskConstraint(critics=1, estimate=self.estimate)
        return trust_region_algorithm(risk, task, self.estimation, self.trust_region, self.critic)

    def estimate(self, evidence):
        rollout, window, terms = evidence.rollout, evidence.window, evidence.terms
        signal = excess(spent_after(rollout)) - excess(rollout.spent)
        advantage, target = cost_advantages(
            rollout, signal, evidence.values[0], evidence.next_values[0],
            discount=1.0, decay=self.estimation.gae_lambda,
        )  # fmt: skip
        span = self.estimation.span
        # The mean over the recent episodes; NaN while there is none
        value = jnp.mean(excess(window.cost / terms.limit), where=recent(window, span))
        return RiskEstimate(
            advantages=advantage[None],
            targets=target[None],
            bound=lambda change: value - terms.epsilon + change,  # <= 0 is safe
            length=cost_moments(window, span, terms.limit).length,
            metrics={"mean_excess": value},
            weight=jnp.ones_like(rollout.discount),
        )


ALGORITHMS["excess"] = ExcessConfig


def main(total_steps: int = 200_000, **how) -> canary.Run:
    constraint = canary.Chance(limit=5.5, epsilon=0.02)
    run = canary.train("IcyLake", "excess", constraint, seeds=2, total_steps=total_steps, **how)
    print(run.certify()["sentence"])
    return run


if __name__ == "__main__":
    main()
