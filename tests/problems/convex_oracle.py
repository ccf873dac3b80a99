"""A convex solver that answers trust-region programs.

With H = LL' and u = L's / √(2 radius) the trust region is the unit ball, and a gradient v becomes
L⁻¹v. Each program is solved in these coordinates, in all its dimensions, every gradient scaled to
unit length: a second-order cone program.
"""

from dataclasses import dataclass

import clarabel
import numpy as np
import scipy.sparse

from canary.numerics.trust_region import TrustRegionSolution
from problems.random_programs import Program

# Excess of a violated constraint without gradient, in units of what the trust region can change.
NEVER = 1e3


@dataclass(frozen=True)
class Normalised:
    """A program whose gradients are unit vectors (or zero), in the unit ball."""

    rows: np.ndarray
    excess: np.ndarray
    reach: float
    whitened: np.ndarray

    def step(self, solution: TrustRegionSolution) -> np.ndarray:
        return self.whitened.T @ solution.coefficients.astype(np.float64) / self.reach


def normalise(program: Program) -> Normalised:
    whitened, reach = program.whitened, np.sqrt(2 * program.radius)
    lengths = np.linalg.norm(whitened, axis=1)
    rows = whitened / np.where(lengths > 0, lengths, 1)[:, None]
    change = reach * lengths[1:]
    constant = np.where(program.values > 0, NEVER, -NEVER)
    excess = np.where(change > 0, program.values / np.where(change > 0, change, 1), constant)
    return Normalised(rows, excess, reach, whitened)


def reachable(problem: Normalised) -> tuple[float, float]:
    """(m_μ, m_B) of eq:reachability from the convex solver; without a mean constraint m_μ is -1."""
    bound, mean_rows, mean_excess = problem.rows[1], problem.rows[2:], problem.excess[1:]
    mean = -1.0
    if len(mean_excess):
        mean = mean_excess[0] + minimise_in_ball(mean_rows[0], problem.rows[:0], problem.excess[:0])
    if mean > 0:
        return mean, np.inf
    return mean, problem.excess[0] + minimise_in_ball(bound, mean_rows, -mean_excess)


def minimise_in_ball(direction: np.ndarray, rows: np.ndarray, limits: np.ndarray) -> float:
    """min direction·u subject to rows @ u <= limits and |u| <= 1; +inf if there is no such u."""
    size = direction.size
    ball = np.vstack([np.zeros(size), -np.eye(size)])
    matrix = scipy.sparse.csc_matrix(np.vstack([rows.reshape(-1, size), ball]))
    right = np.concatenate([limits, [1.0], np.zeros(size)])
    cones = [clarabel.NonnegativeConeT(len(limits))] if len(limits) else []
    cones.append(clarabel.SecondOrderConeT(size + 1))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    empty = scipy.sparse.csc_matrix((size, size))
    answer = clarabel.DefaultSolver(empty, direction, matrix, right, cones, settings).solve()
    if "Infeasible" in str(answer.status):
        return np.inf
    assert "Solved" in str(answer.status), answer.status
    return float(direction @ np.array(answer.x))
