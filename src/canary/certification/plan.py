"""How a certification is carried out: decided before the first episode is played, and part of the
certificate.
"""

import math
from dataclasses import dataclass, replace

from canary.certification.sample_size import clean_episodes, planned_episodes
from canary.constraints import Chance, Constraint
from canary.errors import CanaryError

RATE_TO_DETECT = 0.5  # of epsilon: a policy this safe should get its verdict,
POWER = 0.9  # with this probability
# A test that may stop at any time needs, at worst, about twice the episodes for the same power
ANYTIME_FACTOR = 2
FEWEST_FOR_MEANS, MOST_FOR_MEANS = 1000, 1_000_000
# Times b log(1/alpha) / (share limit), with which the rarest costs alone would use up the limit
MARGIN_FOR_MEANS = 8


@dataclass(frozen=True, kw_only=True)
class Plan:
    confidence: float = 0.95
    """A wrong verdict (SATISFIED or VIOLATED) has at most the probability 1 - confidence."""
    statements: int = 1
    """So many verdicts shall be right together; each is given at 1 - (1 - confidence) / statements
    (Bonferroni).
    """
    episodes: int | None = None
    """Episodes per policy, the most where it may stop early; None plans them from epsilon."""
    early_stop: bool = True
    """Stop as soon as the verdict is clear, by bounds that hold at all times together."""
    batch: int = 256
    """Episodes played in parallel; the test looks after each batch."""
    cost_bound: float | None = None
    """The largest cost an episode can have (largest cost of a step times the horizon); None: no
    bounds on means.
    """
    deterministic: bool = False
    """Take the most likely action instead of sampling: that is another policy, with another
    certificate."""

    def __post_init__(self):
        if not 0 < self.confidence < 1:
            raise CanaryError(
                "The confidence must lie strictly between 0 and 1, such as 0.95, not "
                f"{self.confidence!r}."
            )
        for name in ("statements", "episodes", "batch"):
            value = getattr(self, name)
            if not (name == "episodes" and value is None) and (
                not isinstance(value, int) or value < 1
            ):
                raise CanaryError(
                    f"The number of {name} of a certification must be at least 1, not {value!r}."
                )
        if self.cost_bound is not None and not math.isfinite(self.cost_bound):
            raise CanaryError(
                f"The largest possible cost must be a finite number, not {self.cost_bound!r}."
            )

    @property
    def corrected_confidence(self) -> float:
        """The confidence of each single statement, such that all hold together with
        `confidence`."""
        return 1 - (1 - self.confidence) / self.statements


def complete(plan: Plan, constraint: Constraint) -> Plan:
    """The plan with its number of episodes, planned from the constraint where it was left open."""
    if not isinstance(constraint, Chance):
        episodes = _tail_mean_episodes(
            constraint, largest_cost(plan, constraint), plan.corrected_confidence
        )
        return plan if plan.episodes is not None else replace(plan, episodes=episodes)
    if plan.episodes is not None:
        return plan
    confidence = plan.corrected_confidence
    rate = RATE_TO_DETECT * constraint.epsilon
    episodes = planned_episodes(constraint.epsilon, rate, confidence=confidence, power=POWER)
    if episodes is None:
        raise CanaryError(
            f"Certifying P <= {constraint.epsilon:g} takes too many episodes to plan them; choose "
            f"their number yourself ({clean_episodes(constraint.epsilon, confidence):,} might do, "
            "without any violation) or a larger epsilon."
        )
    return replace(plan, episodes=episodes * ANYTIME_FACTOR if plan.early_stop else episodes)


def largest_cost(plan: Plan, constraint: Constraint) -> float:
    """Without it no number of episodes says anything about a mean."""
    if plan.cost_bound is None:
        raise CanaryError(
            f"Certifying {constraint.text} needs the largest cost of a step: without it an episode "
            "that was not seen could cost anything, and the mean with it. State it as "
            "`largest_step_cost` of the environment, or to canary.certify(run, "
            "largest_step_cost=...) and canary certify --largest-step-cost."
        )
    return plan.cost_bound


def _tail_mean_episodes(constraint: Constraint, cost_bound: float, confidence: float) -> int:
    """Enough for a mean well within the limit: costs too rare to be seen must not be able to fill
    it."""
    rarest = cost_bound * -math.log(1 - confidence) / (constraint.share * constraint.limit)
    return int(min(max(FEWEST_FOR_MEANS, math.ceil(MARGIN_FOR_MEANS * rarest)), MOST_FOR_MEANS))
