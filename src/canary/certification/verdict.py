"""From the episodes of one policy to its verdict: its constraint is SATISFIED, VIOLATED or
UNDECIDED.

SATISFIED: the upper bound on what the constraint limits is within what is allowed. VIOLATED: the
lower bound is above it. For a given law of the costs only one of the two can be wrong, so with each
bound at confidence 1 - alpha a wrong verdict has probability at most alpha.

Chance   Clopper-Pearson for a number of episodes fixed in advance, else a mixture martingale
Mean     betting, for either
CVaR     the integrated survival function; look j of a test that may stop early spends
         alpha / (j (j + 1)), which add up to alpha over all looks

Several statements (seeds, changed environments) are corrected by Bonferroni: alpha is divided by
their number. Then all hold together with the stated confidence, dependent or not, so one may pick
the best-looking seed afterwards and keep its bound. Holm's method rejects a little more
but gives no simple bounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from canary.certification import bounds
from canary.certification.bounds import Costs
from canary.certification.plan import Plan, largest_cost, planned_episodes
from canary.constraints import Chance, Constraint, Mean, One, parts_of
from canary.errors import CanaryError
from canary.numerics.costs import violates
from canary.numerics.statistics import clopper_pearson_lower, clopper_pearson_upper

Verdict = Literal["SATISFIED", "VIOLATED", "UNDECIDED"]
Changes = dict[str, int | float]
"""New values of an environment's settings; empty: nothing is changed."""
Table = Float[np.ndarray, "episode column"]
"""A row per episode: its costs, return and length."""

FIXED = clopper_pearson_lower, clopper_pearson_upper
ANYTIME = bounds.anytime_lower, bounds.anytime_upper


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the episodes of one frozen policy say about one constraint. Each bound holds with the
    corrected confidence, and is a function of the costs, the plan and the constraint."""

    seed: int = 0
    changes: Changes
    promise: int | None
    """Which of several costs, from 1; None if there is one."""
    policy_sha256: str
    costs: str
    """The cost of every episode in the order played, equal ones together: "812x0 1 14x0 3.5"."""
    return_mean: float | None
    length_mean: float | None
    episodes: int
    violations: int
    lower: float
    """On what the constraint limits: P(C > limit), the mean cost, or CVaR."""
    upper: float
    value_at_risk_lower: float | None
    value_at_risk_upper: float | None
    conditional_value_at_risk_upper: float | None
    """None without a largest possible cost: the largest cost seen is not one."""
    mean: float | None
    mean_upper: float | None
    episodes_needed: int | None
    """Fixed number of episodes that would decide with probability 0.9 if the rate seen is the true
    one."""
    verdict: Verdict
    sentence: str


def encode_costs(costs: Costs) -> str:
    """Runs of equal costs as text; every number comes back exactly."""
    texts = (repr(cost).removesuffix(".0") for cost in costs.tolist())
    runs = ((text, len(list(group))) for text, group in groupby(texts))
    return " ".join(f"{count}x{text}" if count > 1 else text for text, count in runs)


def decode_costs(text: str) -> Costs:
    """The cost of every episode."""
    runs = [word.rpartition("x") for word in text.split()]
    counts = np.array([int(count or 1) for count, _, _ in runs], int)
    return np.repeat(np.array([float(cost) for _, _, cost in runs]), counts)


def examine(table: Table, plan: Plan, constraint: Constraint, **about: Any) -> list[Result]:
    """A result for each constraint. `about`: seed, changes and digest of the policy."""
    assert plan.episodes is not None
    if len(table) > plan.episodes:
        raise CanaryError(
            f"{len(table):,} episodes are more than the {plan.episodes:,} of the plan."
        )
    *costs, returns, lengths = table.T
    for name, column in (("return_mean", returns), ("length_mean", lengths)):
        about[name] = float(column.mean()) if len(table) else None
    pairs = zip(costs, parts_of(constraint), strict=True)
    return [Sample(own, plan, part).result(**about) for own, part in pairs]


def is_decided(table: Table, plan: Plan, constraint: Constraint) -> bool:
    """Whether an anytime test has all its verdicts, and ends."""
    pairs = zip(table.T, parts_of(constraint), strict=False)
    each = (Sample(costs, plan, part) for costs, part in pairs)
    return plan.early_stop and len(table) > 0 and all(one.is_decided() for one in each)


@dataclass(frozen=True)
class Sample:
    """The costs of a policy's episodes, and the terms on which they are judged."""

    costs: Costs
    plan: Plan
    constraint: One

    @cached_property
    def looks(self) -> int:
        """How often an anytime test has looked; 0 for a number of episodes fixed in advance.

        A fixed plan that was interrupted needs anytime bounds, which hold whoever chose the time.
        """
        plan, count = self.plan, len(self.costs)
        is_fixed = not plan.early_stop and plan.episodes in (None, count)
        return 0 if is_fixed else math.ceil(count / plan.batch)

    @property
    def level(self) -> float:
        """The confidence of a bound that is valid at one look, so that all looks hold together."""
        alpha = 1 - self.plan.corrected_confidence
        return 1 - alpha / (self.looks * (self.looks + 1)) if self.looks else 1 - alpha

    @cached_property
    def largest(self) -> float:
        """The largest possible cost; infinite if a chance constraint has none. Bounds on means
        assume that costs lie between 0 and it."""
        bound = largest_cost(self.plan, self.constraint)
        least = -math.inf if isinstance(self.constraint, Chance) else 0.0
        most = math.inf if bound is None else bound
        outside = self.costs[(self.costs < least) | (self.costs > most * (1 + 1e-6))]
        if len(outside):
            raise CanaryError(
                f"An episode cost {outside[0]:g}, but {self.constraint.text} was to be certified for "
                f"costs between {least:g} and {most:g}; correct the largest cost of a step."
            )
        return most

    @cached_property
    def violations(self) -> int:
        return int(violates(self.costs, self.constraint.limit).sum())

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound on what the constraint limits."""
        costs, constraint, largest = self.costs, self.constraint, self.largest
        confidence, count = self.plan.corrected_confidence, len(costs)
        if isinstance(constraint, Chance):
            lower, upper = ANYTIME if self.looks else FIXED
            seen = self.violations, count, confidence
            return (float(lower(*seen)), float(upper(*seen))) if count else (0.0, 1.0)
        if isinstance(constraint, Mean):
            return bounds.mean_bounds(costs, constraint.limit, largest, confidence)
        lower = bounds.tail_mean_lower(costs, constraint.share, self.level)
        return lower, bounds.tail_mean_upper(costs, constraint.share, largest, self.level)

    @property
    def verdict(self) -> Verdict:
        lower, upper = self.bounds
        if upper <= self.constraint.allowed:
            return "SATISFIED"
        return "VIOLATED" if lower > self.constraint.allowed else "UNDECIDED"

    def is_decided(self) -> bool:
        if isinstance(self.constraint, Mean):  # without the bounds, which take a bisection
            bets = self.costs, self.constraint.limit, self.largest
            return bounds.excludes_mean(
                *bets, self.plan.corrected_confidence, self.constraint.allowed
            )
        return self.verdict != "UNDECIDED"

    def result(self, **about: Any) -> Result:
        """All bounds, the verdict, and its sentence. A mean constraint names no share of worst
        episodes, so it has no bounds on VaR and CVaR."""
        costs, count, share = self.costs, len(self.costs), self.constraint.share
        (lower, upper), confidence = self.bounds, self.plan.corrected_confidence
        at_risk, tail, mean, needed = [None, None], None, None, None
        if isinstance(self.constraint, Mean):
            mean = upper
        else:
            pair = ANYTIME if self.looks else FIXED
            at_risk = [bounds.value_at_risk_bound(costs, share, confidence, one) for one in pair]
            if count and self.largest < math.inf:
                ends = self.largest, self.level
                tail, mean = (bounds.tail_mean_upper(costs, part, *ends) for part in (share, 1.0))
        if isinstance(self.constraint, Chance) and count:
            rate = self.violations / count
            needed = planned_episodes(self.constraint.epsilon, rate, confidence=confidence)
        return Result(
            **about,
            promise=self.constraint.number,
            costs=encode_costs(costs),
            episodes=count,
            violations=self.violations,
            lower=lower,
            upper=upper,
            value_at_risk_lower=at_risk[0],
            value_at_risk_upper=at_risk[1],
            conditional_value_at_risk_upper=tail,
            mean=float(costs.mean()) if count else None,
            mean_upper=mean,
            episodes_needed=needed,
            verdict=self.verdict,
            sentence=self._sentence(needed),
        )

    def _sentence(self, needed: int | None) -> str:
        """What the verdict says. Bounds are rounded so that the sentence never claims too much."""
        constraint, count = self.constraint, len(self.costs)
        if not count:
            return "No episode of this policy was played, so nothing is known about it."
        say: Callable[[float], str] = "{:.6g}".format
        if isinstance(constraint, Chance):
            say = percent
            what = f"the share of episodes with {constraint.cost} > {constraint.limit:g}"
        elif isinstance(constraint, Mean):
            what = f"the mean {constraint.cost} of an episode"
        else:
            what = (
                f"the mean {constraint.cost} of the worst {percent(constraint.share)} of episodes"
            )
        lower, upper = self.bounds
        least, most = say(_round(lower, math.floor)), say(_round(upper, math.ceil))
        found = {
            "SATISFIED": f"at most {most}",
            "VIOLATED": f"more than {least}",
            "UNDECIDED": f"between {least} and {most}",
        }[self.verdict]
        sentence = (
            f"{statement_start(self.plan)}, {what} is {found}; allowed is {say(constraint.allowed)}, "
            f"seen was {say(constraint.measure(self.costs))} in {count:,} episodes."
        )
        if self.verdict == "UNDECIDED":
            sentence += " These episodes cannot tell."
            if needed:
                sentence += f" About {needed:,} would decide if the rate seen is the true one."
        return sentence


def percent(value: float) -> str:
    return f"{100 * value:.4g}%"


def statement_start(plan: Plan) -> str:
    together = f" in all {plan.statements} statements together" if plan.statements > 1 else ""
    return f"With {percent(plan.confidence)} confidence{together}"


def _round(value: float, rounding: Callable[[float], int]) -> float:
    """To four significant digits, up or down."""
    scale = 10 ** (3 - math.floor(math.log10(value))) if value > 0 else 1
    return rounding(value * scale) / scale
