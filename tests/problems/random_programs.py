"""Random trust-region programs, each kind built to have one property.

max g·s   subject to   c_i + b_i·s <= 0,   ½ s'Hs <= radius
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

Vector = np.ndarray
Rng = np.random.Generator


@dataclass(frozen=True)
class Program:
    """One program; rows of `gradients` are g, b_1, ..., b_k."""

    kind: str
    hessian: np.ndarray
    gradients: np.ndarray
    values: np.ndarray
    radius: float

    @cached_property
    def whitened(self) -> np.ndarray:
        """L⁻¹v for each gradient v, so that inner products of rows are those of the H⁻¹ metric."""
        factor = np.linalg.cholesky(self.hessian)
        return scipy.linalg.solve_triangular(factor, self.gradients.T, lower=True).T

    @cached_property
    def gram(self) -> np.ndarray:
        rows = self.whitened
        return rows @ rows.T


def random_hessian(rng: Rng, dimension: int, condition: float = 100.0) -> np.ndarray:
    """Symmetric positive definite with eigenvalues spread over `condition`."""
    rotation = scipy.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    spectrum = np.exp(rng.uniform(0, np.log(condition), dimension)) / np.sqrt(condition)
    hessian = (rotation * spectrum) @ rotation.T
    return (hessian + hessian.T) / 2


def _unit(vector: Vector) -> Vector:
    return vector / np.linalg.norm(vector)


def _tilted(rng: Rng, vector: Vector, angle: float) -> Vector:
    """A unit vector at about the given angle from the unit vector `vector`."""
    return _unit(vector + angle * _unit(rng.normal(size=vector.shape)))


def _small_angle(rng: Rng) -> float:
    return 10 ** rng.uniform(-8, -1)


Shape = Callable[[Rng, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _generic(rng, vectors, excess):
    return vectors, excess


def _near_parallel(rng, vectors, excess):
    g, bound, _ = vectors
    angle = _small_angle(rng)
    # Excesses that differ by about the angle make the two boundaries cross inside the ball.
    return np.array([g, bound, _tilted(rng, bound, angle)]), excess[0] + np.array(
        [0, angle * rng.normal()]
    )


def _near_antiparallel(rng, vectors, excess):
    g, bound, _ = vectors
    angle = _small_angle(rng)
    shift = rng.choice([angle * rng.normal(), -abs(rng.normal()), 0.1 * rng.normal()])
    return np.array([g, bound, _tilted(rng, -bound, angle)]), np.array(
        [excess[0], -excess[0] + shift]
    )


def _same_half_space(rng, vectors, excess):
    return vectors[[0, 1, 1]], np.array([excess[0], excess[0] + rng.choice([0.0, 0.3, -0.3])])


def _opposite_half_spaces(rng, vectors, excess):
    g, bound, _ = vectors
    return np.array([g, bound, -bound]), np.array(
        [excess[0], -excess[0] - rng.choice([0.2, 0.5, -0.3])]
    )


def _objective_in_span(rng, vectors, excess):
    mixture = rng.normal(size=2) @ vectors[1:]
    return np.array([_unit(mixture), vectors[1], vectors[2]]), excess


def _objective_along_constraint(rng, vectors, excess):
    which, sign = rng.integers(1, 3), rng.choice([-1.0, 1.0])
    tilt = rng.choice([0.0, _small_angle(rng)])
    return np.array([sign * _tilted(rng, vectors[which], tilt), vectors[1], vectors[2]]), excess


def _on_the_boundary(rng, vectors, excess):
    """c_i = 0 for one constraint or for both."""
    return vectors, excess * rng.choice([[0, 0], [0, 1], [1, 0]])


def _zero_gradient(rng, vectors, excess):
    keep = np.array(rng.choice([[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]))
    return vectors * keep[:, None], excess


def _everything_parallel(rng, vectors, excess):
    return np.outer(rng.choice([-1.0, 1.0], 3), vectors[0]), excess


def _comfortably_safe(rng, vectors, excess):
    return vectors, -np.abs(excess) - 0.3


def _mean_out_of_reach(rng, vectors, excess):
    return vectors, np.array([excess[0], 1.05 + abs(excess[1])])


SHAPES: dict[str, Shape] = {
    "generic": _generic,
    "near parallel": _near_parallel,
    "near antiparallel": _near_antiparallel,
    "same half-space": _same_half_space,
    "opposite half-spaces": _opposite_half_spaces,
    "objective in span": _objective_in_span,
    "objective along constraint": _objective_along_constraint,
    "on the boundary": _on_the_boundary,
    "zero gradient": _zero_gradient,
    "everything parallel": _everything_parallel,
    "comfortably safe": _comfortably_safe,
    "mean out of reach": _mean_out_of_reach,
    "tiny and huge scales": _generic,
}


def random_program(rng: Rng, kind: str, constraints: int = 2) -> Program:
    """A program in 1 to 50 dimensions, with two constraints or the first of them alone."""
    dimension = int(rng.choice([1, 2, 3, 3, 4, 6, 10, 20, 50]))
    vectors = np.array([_unit(rng.normal(size=dimension)) for _ in range(3)])
    unit_rows, excess = SHAPES[kind](rng, vectors, rng.normal(size=2) * 0.7)
    spread = 12 if kind == "tiny and huge scales" else 1
    magnitudes = 10 ** rng.uniform(-spread, spread, 3)
    radius = 10 ** rng.uniform(-spread / 2, spread / 2) / 100
    hessian = random_hessian(rng, dimension)
    factor = np.linalg.cholesky(hessian)
    return Program(
        kind=kind,
        hessian=hessian,
        gradients=((magnitudes[:, None] * unit_rows) @ factor.T)[: 1 + constraints],
        values=(excess * magnitudes[1:] * np.sqrt(2 * radius))[:constraints],
        radius=radius,
    )
