"""The paper's theory, exactly: relative variance of estimators of tail-risk constraints
(docs/relative-variance.md), and worst-case bounds of an update (`worst_case`)."""

from canary.numerics.gaussian_tail import GaussianTail, gaussian_tail
from canary.theory.law import ScoredLaw, from_trajectories, scored_law, soft_policy, with_violation
from canary.theory.relative_variance import (
    PlugIn,
    RelativeVariance,
    SampledConstraint,
    cantelli,
    cvar,
    indicator,
    mean,
    of_gradient,
    of_value,
    plug_in_gradient,
    plug_in_value,
)

__all__ = [
    "GaussianTail", "PlugIn", "RelativeVariance", "SampledConstraint", "ScoredLaw", "cantelli", "cvar",
    "from_trajectories", "gaussian_tail", "indicator", "mean", "of_gradient", "of_value",
    "plug_in_gradient", "plug_in_value", "scored_law", "soft_policy", "with_violation",
]  # fmt: skip
