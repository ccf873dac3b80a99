"""Results of certification: one for each frozen policy and constraint, and the certificate, which
is plain data that anybody can check.

SATISFIED: the upper bound on the constrained quantity is at most its allowed value. VIOLATED: the
lower bound is above it. For a given law of the costs only one of the two can be wrong, so with each
bound at confidence 1 - alpha a wrong verdict has probability at most alpha.

    Chance   Clopper-Pearson for a number of episodes fixed in advance, else a mixture martingale
    Mean     betting, in both cases
    CVaR     the integrated survival function; look j of a test that may stop early spends
             alpha / (j (j + 1)), which add up to alpha over all looks

Several statements (seeds, costs, changed environments) are corrected by Bonferroni: alpha is
divided by their number. Then all hold together with the stated confidence, dependent or not, so one
may choose the best seed afterwards and keep its bound. Holm's method rejects a little more but
gives no simple bounds.

A certificate has these fields:

    environment, settings, cost_discount     the environment
    constraint, limit, epsilon               the constraint; lists if there are several costs;
                                             epsilon is 1 for a mean
    plan, evaluation_seed                    with the constraint and the statements they determine
                                             every episode
    results                                  a table per policy and cost (`Result`)
    verdict, sentence                        about the unchanged environment
    origin, versions, time, format           labels
    signature                                of all other fields, if it was signed
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from canary.certification import bounds
from canary.certification.bounds import Costs
from canary.certification.plan import Plan, largest_cost, planned_episodes
from canary.constraints import Chance, Constraint, Joint, Mean, One, from_dict, parts_of
from canary.errors import CanaryError
from canary.numerics.costs import violates
from canary.numerics.statistics import clopper_pearson_lower, clopper_pearson_upper

Verdict = Literal["SATISFIED", "VIOLATED", "UNDECIDED"]
Changes = dict[str, int | float]
"""New values of an environment's settings; empty for the unchanged environment."""
Table = Float[np.ndarray, "episode column"]
"""A row per episode: its costs, return and length."""

FORMAT = 7
VERDICTS: tuple[Verdict, ...] = ("VIOLATED", "UNDECIDED", "SATISFIED")  # worst first


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one frozen policy for one constraint. Everything follows from the fields. Each
    bound holds with the corrected confidence."""

    seed: int = 0
    changes: Changes = field(default_factory=dict)
    policy_sha256: str
    costs: Costs
    """Cost of every episode, in the order of play."""
    return_mean: float | None
    length_mean: float | None
    plan: Plan
    constraint: One

    def __post_init__(self):
        count, most = len(self.costs), self.plan.episodes
        if most is not None and count > most:
            raise CanaryError(f"{count:,} episodes are more than the {most:,} of the plan.")
        least = -math.inf if isinstance(self.constraint, Chance) else 0.0
        outside = self.costs[(self.costs < least) | (self.costs > self._largest * (1 + 1e-6))]
        if len(outside):  # bounds on means would not hold
            raise CanaryError(
                f"An episode cost {outside[0]:g}, but {self.constraint.text} was to be certified for "
                f"costs between {least:g} and {self._largest:g}; correct the largest cost of a step."
            )

    def to_dict(self) -> dict[str, Any]:
        """The entry of a certificate."""
        return {name: getattr(self, name) for name in LISTED} | {"costs": encode_costs(self.costs)}

    @property
    def promise(self) -> int | None:
        """Number of the cost, from 1; None if there is one cost."""
        return self.constraint.number

    @property
    def episodes(self) -> int:
        return len(self.costs)

    @cached_property
    def violations(self) -> int:
        return int(violates(self.costs, self.constraint.limit).sum())

    @property
    def lower(self) -> float:
        """Lower bound on the constrained quantity: P(C > limit), the mean cost, or CVaR."""
        return self.interval[0]

    @property
    def upper(self) -> float:
        return self.interval[1]

    @cached_property
    def interval(self) -> tuple[float, float]:
        """`lower` and `upper`."""
        costs, constraint, largest = self.costs, self.constraint, self._largest
        if isinstance(constraint, Chance):
            seen = self.violations, self.episodes, self.plan.corrected_confidence
            lower, upper = self._on_chance
            return (float(lower(*seen)), float(upper(*seen))) if len(costs) else (0.0, 1.0)
        if isinstance(constraint, Mean):
            confidence = self.plan.corrected_confidence
            return bounds.mean_bounds(costs, constraint.limit, largest, confidence)
        lower = bounds.tail_mean_lower(costs, constraint.share, self._level)
        return lower, bounds.tail_mean_upper(costs, constraint.share, largest, self._level)

    @property
    def value_at_risk(self) -> list[float | None]:
        """Lower and upper bound on VaR; none under a mean constraint, which has no tail share."""
        if isinstance(self.constraint, Mean):
            return [None, None]
        terms = self.costs, self.constraint.share, self.plan.corrected_confidence
        return [bounds.value_at_risk_bound(*terms, bound) for bound in self._on_chance]

    @property
    def conditional_value_at_risk_upper(self) -> float | None:
        """None if the largest possible cost is unknown."""
        is_mean = isinstance(self.constraint, Mean)
        return None if is_mean else self._tail_mean(self.constraint.share)

    @property
    def mean_upper(self) -> float | None:
        return self.upper if isinstance(self.constraint, Mean) else self._tail_mean(1.0)

    def _tail_mean(self, share: float) -> float | None:
        if not self.episodes or math.isinf(self._largest):
            return None
        return bounds.tail_mean_upper(self.costs, share, self._largest, self._level)

    @property
    def mean(self) -> float | None:
        return float(self.costs.mean()) if self.episodes else None

    @cached_property
    def episodes_needed(self) -> int | None:
        """Fixed number of episodes that decides with probability 0.9 if the observed rate is true."""
        if not isinstance(self.constraint, Chance) or not self.episodes:
            return None
        rate, confidence = self.violations / self.episodes, self.plan.corrected_confidence
        return planned_episodes(self.constraint.epsilon, rate, confidence=confidence)

    @property
    def verdict(self) -> Verdict:
        if self.upper <= self.constraint.allowed:
            return "SATISFIED"
        return "VIOLATED" if self.lower > self.constraint.allowed else "UNDECIDED"

    @property
    def sentence(self) -> str:
        """The verdict in words. Bounds are rounded outwards, so the sentence never claims too much."""
        constraint = self.constraint
        if not self.episodes:
            return "No episode of this policy was played, so nothing is known about it."
        say: Callable[[float], str] = "{:.6g}".format
        if isinstance(constraint, Chance):
            say = percent
            what = f"the share of episodes with {constraint.cost} > {constraint.limit:g}"
        elif isinstance(constraint, Mean):
            what = f"the mean {constraint.cost} of an episode"
        else:
            share = percent(constraint.share)
            what = f"the mean {constraint.cost} of the worst {share} of episodes"
        least, most = say(_round(self.lower, math.floor)), say(_round(self.upper, math.ceil))
        found = {
            "SATISFIED": f"at most {most}",
            "VIOLATED": f"more than {least}",
            "UNDECIDED": f"between {least} and {most}",
        }[self.verdict]
        sentence = (
            f"{_start(self.plan)}, {what} is {found}; allowed is {say(constraint.allowed)}, "
            f"seen was {say(constraint.measure(self.costs))} in {self.episodes:,} episodes."
        )
        if self.verdict == "UNDECIDED":
            sentence += " These episodes cannot tell."
            if needed := self.episodes_needed:
                sentence += f" About {needed:,} would decide if the rate seen is the true one."
        return sentence

    def is_decided(self) -> bool:
        if isinstance(self.constraint, Mean):  # its bounds would need a bisection
            bets = self.costs, self.constraint.limit, self._largest
            return bounds.excludes_mean(
                *bets, self.plan.corrected_confidence, self.constraint.allowed
            )
        return self.verdict != "UNDECIDED"

    @cached_property
    def _looks(self) -> int:
        """Number of looks of an anytime test; 0 if the number of episodes was fixed in advance.

        An interrupted fixed plan needs anytime bounds, which are valid at any stopping time.
        """
        plan, count = self.plan, len(self.costs)
        is_fixed = not plan.early_stop and plan.episodes in (None, count)
        return 0 if is_fixed else math.ceil(count / plan.batch)

    @property
    def _level(self) -> float:
        """The confidence of a bound at one look, so that bounds at all looks hold together."""
        alpha = 1 - self.plan.corrected_confidence
        return 1 - alpha / (self._looks * (self._looks + 1)) if self._looks else 1 - alpha

    @property
    def _on_chance(self) -> tuple[Any, Any]:
        """The lower and upper bound on P as functions of (violations, episodes, confidence)."""
        if self._looks:
            return bounds.anytime_lower, bounds.anytime_upper
        return clopper_pearson_lower, clopper_pearson_upper

    @cached_property
    def _largest(self) -> float:
        """The largest possible cost; infinite if a chance constraint has none."""
        bound = largest_cost(self.plan, self.constraint)
        return math.inf if bound is None else bound


LISTED = (
    "seed", "changes", "promise", "policy_sha256", "costs", "return_mean", "length_mean", "episodes",
    "violations", "lower", "upper", "value_at_risk",
    "conditional_value_at_risk_upper", "mean", "mean_upper", "episodes_needed", "verdict", "sentence",
)  # fmt: skip


def examine(table: Table, plan: Plan, constraint: Constraint, **about: Any) -> list[Result]:
    """A result for each constraint. `about`: seed, changes and digest of the policy."""
    *costs, returns, lengths = table.T
    for name, column in (("return_mean", returns), ("length_mean", lengths)):
        about[name] = float(column.mean()) if len(table) else None
    pairs = zip(costs, parts_of(constraint), strict=True)
    return [Result(costs=own, plan=plan, constraint=part, **about) for own, part in pairs]


def is_decided(table: Table, plan: Plan, constraint: Constraint) -> bool:
    """Whether an anytime test may stop: every constraint has its verdict."""
    if not plan.early_stop or not len(table):
        return False
    return all(one.is_decided() for one in examine(table, plan, constraint, policy_sha256=""))


def judge(
    results: Sequence[Result], plan: Plan, constraint: Constraint, accepted: Sequence[str] = ()
) -> dict[str, Any]:
    """The part of a certificate that follows from the episodes. `accepted` lists differences from
    the environment of training."""
    verdict, sentence = summarise(results, plan, constraint, accepted)
    data = {"verdict": verdict, "sentence": sentence, **terms(constraint), "plan": asdict(plan)}
    each = [result.to_dict() for result in results]
    return json.loads(json.dumps(data | {"results": each}, allow_nan=False))


def summarise(
    results: Sequence[Result], plan: Plan, constraint: Constraint, accepted: Sequence[str] = ()
) -> tuple[Verdict, str]:
    """The verdict in the unchanged environment (SATISFIED if all policies are, VIOLATED if any is),
    and a sentence about all results."""
    nominal = [result for result in results if not result.changes]
    shifted = [result.verdict for result in results if result.changes]
    seeds: dict[Verdict, list[str]] = {}  # by worst verdict
    for seed in dict.fromkeys(result.seed for result in nominal):
        own = [result.verdict for result in nominal if result.seed == seed]
        seeds.setdefault(min(own, key=VERDICTS.index), []).append(str(seed))
    verdict, count = min(seeds, key=VERDICTS.index), sum(map(len, seeds.values()))
    if count == 1:
        sentence = " ".join(result.sentence for result in nominal)
    else:
        promise = "the limit" if isinstance(constraint, Chance) else constraint.text
        place = "environment as it is now" if accepted else "environment they were trained in"
        where = f" in the {place}" if plan.statements > count else ""
        said = f"the policies of all {count} seeds stay within {promise}"
        if verdict != "SATISFIED":
            order = sorted(seeds, key=VERDICTS.index)
            said = "; ".join(f"seeds {', '.join(seeds[one])}: {one}" for one in order)
        sentence = f"{_start(plan)}, {said}{where}."
    if shifted:
        counts = ", ".join(f"{shifted.count(v)} {v}" for v in VERDICTS if v in shifted)
        sentence += f" Of {len(shifted)} statements about changed settings: {counts}."
    return verdict, f"{sentence} {changed_sentence(accepted)}" if accepted else sentence


def changed_sentence(changes: Sequence[str]) -> str:
    """States the differences between an accepted environment and that of training."""
    return f"This is not the environment of training: {'; '.join(changes)}."


def terms(constraint: Constraint) -> dict[str, Any]:
    """The fields of a certificate that state its constraint."""
    if isinstance(constraint, Joint):
        each = [terms(part) for part in constraint.parts]
        return {name: [one[name] for one in each] for name in each[0]}
    return {"constraint": constraint.kind, "limit": constraint.limit, "epsilon": constraint.share}


def constraint_of(data: dict[str, Any]) -> Constraint:
    """The constraint of a certificate."""
    columns = [data[name] for name in ("constraint", "limit", "epsilon")]
    is_joint = isinstance(columns[0], list)
    parts = [
        {"kind": kind, "limit": limit} | ({} if kind == "mean" else {"epsilon": epsilon})
        for kind, limit, epsilon in (zip(*columns, strict=True) if is_joint else [columns])
    ]
    return from_dict(parts if is_joint else parts[0])


def results_about(data: dict[str, Any], constraint: One) -> list[dict[str, Any]]:
    """The results of a certificate for one of its constraints."""
    return [result for result in data["results"] if result["promise"] == constraint.number]


def policy_name(seed: int, changes: Changes) -> str:
    return ", ".join([f"seed {seed}", *(f"{name} = {value:g}" for name, value in changes.items())])


def commitment(
    plan: Plan, constraint: Constraint, statements: Sequence[tuple[Changes, int]]
) -> tuple[int, ...]:
    """Four numbers that encode all decisions before the first episode: plan, constraint and the
    (changes, seed) of each statement. The keys of all episodes depend on them, so another plan has
    other episodes."""
    decided = {"plan": asdict(plan), **terms(constraint), "statements": statements}
    digest = hashlib.sha256(canonical(decided)).digest()
    return tuple(int.from_bytes(digest[place : place + 4], "big") for place in range(0, 16, 4))


def canonical(data: dict[str, Any]) -> bytes:
    """JSON data as bytes, to hash or to sign."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def encode_costs(costs: Costs) -> str:
    """Costs as exact text with runs of equal costs: "812x0 1 14x0 3.5"."""
    texts = (repr(cost).removesuffix(".0") for cost in costs.tolist())
    runs = ((text, len(list(group))) for text, group in groupby(texts))
    return " ".join(f"{count}x{text}" if count > 1 else text for text, count in runs)


def decode_costs(text: str) -> Costs:
    """The cost of every episode."""
    runs = [word.rpartition("x") for word in text.split()]
    counts = np.array([int(count or 1) for count, _, _ in runs], int)
    return np.repeat(np.array([float(cost) for _, _, cost in runs]), counts)


def percent(value: float) -> str:
    return f"{100 * value:.4g}%"


def _start(plan: Plan) -> str:
    together = f" in all {plan.statements} statements together" if plan.statements > 1 else ""
    return f"With {percent(plan.confidence)} confidence{together}"


def _round(value: float, rounding: Callable[[float], int]) -> float:
    """To four significant digits, up or down."""
    scale = 10 ** (3 - math.floor(math.log10(value))) if value > 0 else 1
    return rounding(value * scale) / scale
