"""Constraints on the cost C of an episode, as plain records. No JAX here.

    Chance(limit, epsilon)     P(C > limit) <= epsilon
    Mean(limit)                E[C] <= limit
    CVaR(limit, epsilon)       CVaR_eps(C) = min_eta eta + E[(C - eta)+] / eps <= limit

CVaR is the mean cost of the worst share epsilon of all episodes; for epsilon = 1 it would be the
mean. Training, summary, display and certificate use the same record: `measure` gives the
constrained quantity of a sample, `allowed` its largest allowed value.

If an environment has several costs, `Joint` holds a constraint for each, in order.
"""

import math
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.values import Kind as Kind
from canary.values import Range, convert

Costs = Float[np.ndarray, "episode"]


@dataclass(frozen=True)
class _Limit:
    """The base of the three constraints."""

    limit: float
    number: int | None = field(default=None, kw_only=True, repr=False)
    """Number of the cost, from 1; None if the environment has one cost."""

    kind: ClassVar[Kind]

    def __post_init__(self):
        # Outside this range float32 sums lose costs
        limit = convert(Annotated[float, Range(1e-30, 1e30)], self.limit, "The limit")
        object.__setattr__(self, "limit", limit)

    @property
    def cost(self) -> str:
        return "cost" if self.number is None else f"cost {self.number}"

    @property
    def share(self) -> float:
        """The share of episodes that decides; 1 for a mean, where all episodes count."""
        return getattr(self, "epsilon", 1.0)

    @property
    def allowed(self) -> float:
        """The largest allowed value of `measure`."""
        return self.limit

    @property
    def label(self) -> str:
        """A short name of the measured quantity."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        return f"{self.label} <= {self.allowed:g}"


@dataclass(frozen=True)
class _TailLimit(_Limit):
    epsilon: float

    def __post_init__(self):
        super().__post_init__()
        epsilon = convert(float, self.epsilon, "Epsilon")
        if not 0 < epsilon < 1:
            raise CanaryError(f"Epsilon must lie strictly between 0 and 1, not {epsilon:g}.")
        object.__setattr__(self, "epsilon", epsilon)


@dataclass(frozen=True)
class Chance(_TailLimit):
    """P(C > limit) <= epsilon (paper eq. var-bound). An episode whose cost is strictly above the
    limit is a violation; epsilon is the largest allowed probability of a violation."""

    kind: ClassVar[Kind] = "chance"

    @property
    def allowed(self) -> float:
        return self.epsilon

    @property
    def label(self) -> str:
        return f"P({self.cost} > {self.limit:g})"

    def measure(self, costs: Costs) -> float:
        """The share of violations; a NaN cost counts as a violation."""
        return float(np.mean(~(np.asarray(costs) <= self.limit)))


@dataclass(frozen=True)
class Mean(_Limit):
    """E[C] <= limit: a limit on the mean episode cost."""

    kind: ClassVar[Kind] = "mean"

    @property
    def label(self) -> str:
        return f"mean {self.cost}"

    def measure(self, costs: Costs) -> float:
        return float(np.mean(np.asarray(costs, float)))


@dataclass(frozen=True)
class CVaR(_TailLimit):
    """CVaR_eps(C) <= limit: a limit on the mean cost of the worst share epsilon of all episodes."""

    kind: ClassVar[Kind] = "cvar"

    @property
    def label(self) -> str:
        of = "" if self.number is None else f" of {self.cost}"
        return f"CVaR {100 * self.epsilon:.4g}%{of}"

    @property
    def text(self) -> str:
        return f"CVaR {100 * self.epsilon:.4g}% of {self.cost} <= {self.allowed:g}"

    def measure(self, costs: Costs) -> float:
        """eta + E[(C - eta)+] / eps, with eta the VaR of the sample."""
        costs = np.asarray(costs, float)
        eta = threshold(costs, self.epsilon)
        return float(eta + np.maximum(costs - eta, 0).mean() / self.epsilon)


One = Chance | Mean | CVaR


@dataclass(frozen=True)
class Joint:
    """Several constraints that must hold together, one for each cost of the environment."""

    parts: tuple[One, ...]

    kind: ClassVar[str] = "joint"

    def __post_init__(self):
        parts = tuple(self.parts)
        if len(parts) < 2 or not all(isinstance(part, One) for part in parts):
            raise CanaryError(
                "Several limits are a list of two or more of canary.Chance, canary.Mean and "
                f"canary.CVaR, one for each cost, not {self.parts!r:.80}."
            )
        numbered = (replace(part, number=index + 1) for index, part in enumerate(parts))
        object.__setattr__(self, "parts", tuple(numbered))

    @property
    def limit(self) -> Float[np.ndarray, "cost"]:
        return np.array([part.limit for part in self.parts])

    @property
    def share(self) -> Float[np.ndarray, "cost"]:
        return np.array([part.share for part in self.parts])

    @property
    def allowed(self) -> float:
        return 1.0

    @property
    def label(self) -> str:
        return "worst level"

    @property
    def text(self) -> str:
        return " and ".join(part.text for part in self.parts)

    def measure(self, costs: Float[np.ndarray, "episode cost"]) -> float:
        """The largest level; a level is a measured value divided by the allowed one."""
        return max(part.measure(own_costs(part, costs)) / part.allowed for part in self.parts)


Constraint = One | Joint
CONSTRAINTS: dict[Kind, type[One]] = {"chance": Chance, "mean": Mean, "cvar": CVaR}


def parts_of(constraint: Constraint) -> tuple[One, ...]:
    """The constraints, one for each cost."""
    return constraint.parts if isinstance(constraint, Joint) else (constraint,)


def own_costs(constraint: One, costs: Any) -> Any:
    """The costs that a constraint limits; several costs are the last axis of `costs`."""
    return costs if constraint.number is None else np.asarray(costs)[..., constraint.number - 1]


def one_cost(constraint: Constraint, what: str) -> One:
    """The constraint, or an error for features that work with one cost only."""
    if isinstance(constraint, Joint):
        raise CanaryError(f"{what} works with one cost only, not with {constraint.text}.")
    return constraint


def threshold(costs: Costs, share: float) -> float:
    """VaR of the sample: the smallest cost that at most a share `share` of the episodes exceeds."""
    exceed = math.floor(share * len(costs) * (1 + 1e-12))
    return float(np.sort(costs)[::-1][min(exceed, len(costs) - 1)])


def to_dict(constraint: Constraint) -> Any:
    """Plain data that `from_dict` reads: a table, or a list of them for several costs."""
    if isinstance(constraint, Joint):
        return [to_dict(part) for part in constraint.parts]
    known = {name: value for name, value in asdict(constraint).items() if value is not None}
    return {"kind": constraint.kind, **known}


def from_dict(data: Any) -> Constraint:
    """The constraint of a stored run."""
    if isinstance(data, list):
        return Joint(tuple(from_dict(part) for part in data))  # type: ignore[arg-type]
    try:
        fields = dict(data)
        return CONSTRAINTS[fields.pop("kind")](**fields)
    except (KeyError, TypeError, ValueError):
        raise CanaryError(f"A constraint cannot be made of {data!r:.80}.") from None


class Tier(IntEnum):
    """The aim of a trust-region step (eq:recovery)."""

    NOMINAL = 0
    BOUND_RESTORATION = 1
    MEAN_RESTORATION = 2
    NO_STEP = 3

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")
