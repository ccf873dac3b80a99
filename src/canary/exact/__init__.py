"""Exact laws of the episode cost, and optima under tail-risk constraints, in finite environments."""

from canary.exact.distribution import CostLaw, cost_law, mix, visits
from canary.exact.mdp import FiniteMDP, from_environment
from canary.exact.optimal import (
    CONSTRAINTS,
    Infeasible,
    Optimum,
    best_response,
    best_under_cantelli,
    best_under_cvar,
    best_under_var,
)

__all__ = [
    "CONSTRAINTS", "CostLaw", "FiniteMDP", "Infeasible", "Optimum", "best_response",
    "best_under_cantelli", "best_under_cvar", "best_under_var", "cost_law", "from_environment",
    "mix", "visits",
]  # fmt: skip
