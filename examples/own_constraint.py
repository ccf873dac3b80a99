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
from canary.algorithms.trust_region_update import (
    RiskConstraint,
    RiskEstimate,
    trust_region_algorithm,
)

import canary
from canary.algorithms import ALGORITHMS, Entry
from canary.algorithms.cpo import CPOConfig
from canary.algorithms.signals import cost_advantages, episode_metrics, spent_after
from canary.numerics.moments import Span, cost_moments, recent


@dataclass(frozen=True, kw_only=True)
class ExcessConfig(CPOConfig):
    """Settings of the shared update; the presets know them as CPO's."""


def excess(spent):
    """How far a cost is above the limit, both in units of the limit."""
    return jnp.maximum(spent - 1, 0)


def mean_excess(window, span, limit):
    """Over the recent episodes; not a number while there is none."""
    counts = recent(window, span)
    total = jnp.where(counts, excess(window.cost / limit), 0).sum()
    return jnp.where(counts.any(), total / jnp.maximum(counts.sum(), 1), jnp.nan)


def make_excess(config, task):
    def estimate(evidence):
        rollout, window, terms = evidence.rollout, evidence.window, evidence.terms
        signal = excess(spent_after(rollout)) - excess(rollout.spent)
        advantage, target = cost_advantages(
            rollout, signal, evidence.values[0], evidence.next_values[0],
            discount=1.0, decays=config.estimation.cost_decays,
        )  # fmt: skip
        value = mean_excess(window, config.estimation.span, terms.limit)
        batch = mean_excess(window, Span(0), terms.limit) - terms.epsilon
        return RiskEstimate(
            advantages=advantage[None],
            targets=target[None],
            bound=lambda change: value - terms.epsilon + change,  # <= 0 is safe
            length=cost_moments(window, config.estimation.span, terms.limit).length,
            metrics=episode_metrics(window, config.estimation, terms.limit)
            | {"mean_excess": value, "batch_bound": batch},
            weight=jnp.ones_like(rollout.discount),
        )

    risk = RiskConstraint(critics=1, estimate=estimate)
    return trust_region_algorithm(risk, task, config.estimation, config.trust_region, config.critic)


ALGORITHMS["excess"] = Entry(ExcessConfig, make_excess, ("chance",))


def main(total_steps: int = 200_000, **how) -> canary.Run:
    constraint = canary.Chance(limit=5.5, epsilon=0.02)
    run = canary.train("IcyLake", "excess", constraint, seeds=2, total_steps=total_steps, **how)
    print(run.certify()["sentence"])
    return run


if __name__ == "__main__":
    main()
