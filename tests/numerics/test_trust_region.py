"""The closed form against a convex solver, optimality conditions, invariances, degenerate cases."""

import cvxpy
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis.extra.numpy import arrays

from canary.constraints import Tier
from canary.numerics.trust_region import TrustRegionSolution, solve
from problems.convex_oracle import minimise_in_ball, normalise, reachable
from problems.random_programs import SHAPES, Program, random_program

TOLERANCE = 1e-5
# Where a constraint is reachable only just, rounding decides the tier.
BORDERLINE = 2e-5
BATCH = 40
COUNTS = [40, pytest.param(400, marks=pytest.mark.slow)]  # programs of each kind

solve_all = jax.jit(jax.vmap(solve))
solve_one = jax.jit(solve)


def solve_programs(programs: list[Program], dtype=np.float64) -> list[TrustRegionSolution]:
    """Solve programs in batches of one size, compiled once; a record of numpy arrays for each."""
    solutions = []
    for start in range(0, len(programs), BATCH):
        chunk = programs[start : start + BATCH]
        stacked = [
            np.array([getattr(p, name) for p in chunk], dtype)
            for name in ("gram", "values", "radius")
        ]
        batch = solve_batch(*stacked)
        solutions += [jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in range(len(chunk))]
    return solutions


def solve_batch(gram: np.ndarray, values: np.ndarray, radius: np.ndarray) -> TrustRegionSolution:
    """Solve at most `BATCH` problems in the precision of the arrays."""
    filled = (np.resize(array, (BATCH, *array.shape[1:])) for array in (gram, values, radius))
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, solve_all(*filled))


def expected_tier(mean: float, bound: float) -> Tier:
    if mean > 0:
        return Tier.MEAN_RESTORATION
    return Tier.BOUND_RESTORATION if bound > 0 else Tier.NOMINAL


def check_against_convex_solver(program: Program, solution: TrustRegionSolution) -> Tier:
    """Tier, feasibility and optimality; returns the tier that reachability demands."""
    problem = normalise(program)
    step = problem.step(solution)
    values = problem.excess + problem.rows[1:] @ step
    mean, bound = reachable(problem)
    borderline = min(abs(mean), abs(bound)) < BORDERLINE
    tier = expected_tier(mean, bound)
    if solution.tier == Tier.NO_STEP:
        assert not solution.coefficients.any()
    elif borderline:
        tier = Tier(int(solution.tier))
    else:
        assert solution.tier == tier

    assert np.linalg.norm(step) <= 1 + TOLERANCE
    if tier == Tier.NOMINAL:
        assert values.max() <= TOLERANCE
        if not borderline:
            best = -minimise_in_ball(-problem.rows[0], problem.rows[1:], -problem.excess)
            assert problem.rows[0] @ step == pytest.approx(best, abs=TOLERANCE)
    elif tier == Tier.BOUND_RESTORATION:
        assert (values[1:] <= TOLERANCE).all()
        assert borderline or values[0] == pytest.approx(bound, abs=TOLERANCE)
    else:
        assert values[1] == pytest.approx(mean, abs=TOLERANCE)
    return tier


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", SHAPES)
def test_two_constraints_match_the_convex_solver(kind, count):
    rng = np.random.default_rng(list(SHAPES).index(kind))
    programs = [random_program(rng, kind) for _ in range(count)]
    for program, solution in zip(programs, solve_programs(programs), strict=True):
        check_against_convex_solver(program, solution)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", SHAPES)
def test_one_constraint_matches_the_convex_solver(kind, count):
    rng = np.random.default_rng(100 + list(SHAPES).index(kind))
    programs = [random_program(rng, kind, constraints=1) for _ in range(count // 4)]
    for program, solution in zip(programs, solve_programs(programs), strict=True):
        assert check_against_convex_solver(program, solution) != Tier.MEAN_RESTORATION
        assert solution.coefficients.shape == (2,)
        assert solution.predicted_values.shape == solution.constraint_multipliers.shape == (1,)


def test_the_oracle_agrees_with_cvxpy_in_raw_coordinates():
    rng = np.random.default_rng(3)
    compared = 0
    for _ in range(12):
        program = random_program(rng, "generic")
        step = cvxpy.Variable(program.gradients.shape[1])
        ball = 0.5 * cvxpy.quad_form(step, cvxpy.psd_wrap(program.hessian)) <= program.radius
        cuts = program.values + program.gradients[1:] @ step <= 0
        best = cvxpy.Problem(cvxpy.Maximize(program.gradients[0] @ step), [ball, cuts]).solve(
            solver="CLARABEL"
        )
        problem = normalise(program)
        scale = problem.reach * np.linalg.norm(problem.whitened[0])
        ours = -minimise_in_ball(-problem.rows[0], problem.rows[1:], -problem.excess)
        if np.isfinite(best):
            compared += 1
            assert ours == pytest.approx(best / scale, abs=1e-5)
            assert solve_programs([program])[0].predicted_objective == pytest.approx(
                best, abs=1e-5 * scale
            )
        else:
            assert ours == -np.inf
    assert compared >= 5


def vectors_and_excess():
    """Coarse grids: exact degeneracies (zero, parallel, coplanar) are common."""
    grid = st.integers(-4, 4).map(lambda n: n / 2)
    tenths = st.integers(-15, 15).map(lambda n: n / 10)
    return st.tuples(arrays(float, (3, 4), elements=grid), arrays(float, 2, elements=tenths))


# Opposite constraints, both tight: only one of the two has a multiplier that holds.
OPPOSITE = np.array([[0, 0, 0.5, 0.5], [0, 0, 0, -0.5], [0, 0, 0, 0.5]]), np.zeros(2)


@given(vectors_and_excess(), st.floats(-4, 2))
@example(OPPOSITE, 0.0)
@example((OPPOSITE[0][[0, 2, 1]], OPPOSITE[1]), 0.0)
@settings(max_examples=150, deadline=None)
def test_multipliers_satisfy_the_optimality_conditions(drawn, log_radius):
    whitened, excess = drawn
    radius = 10.0**log_radius
    lengths = np.linalg.norm(whitened, axis=1)
    values = excess * np.sqrt(2 * radius) * np.where(lengths[1:] > 0, lengths[1:], 1)
    batch = solve_batch((whitened @ whitened.T)[None], values[None], np.array([radius]))
    solution = jax.tree.map(lambda leaf: leaf[0], batch)
    assume(solution.tier != Tier.NO_STEP)
    step = whitened.T @ solution.coefficients
    tier = Tier(int(solution.tier))
    maximised = [whitened[0], -whitened[1], -whitened[2]][tier]
    in_force = [[True, True], [False, True], [False, False]][tier]
    multiplier, duals = solution.kl_multiplier, solution.constraint_multipliers
    scale = max(np.linalg.norm(maximised), 1e-300)
    # A single feasible point has no multipliers; a zero objective leaves the step undetermined.
    assume(maximised.any() and multiplier * np.sqrt(2 * radius) < 1e3 * scale)

    force = duals @ whitened[1:]
    size = scale + np.abs(duals) @ lengths[1:] + multiplier * np.linalg.norm(step)
    np.testing.assert_allclose(maximised - force - multiplier * step, 0, atol=1e-7 * size)
    assert multiplier >= 0
    assert (duals >= 0).all()
    assert not duals[~np.array(in_force)].any()
    assert step @ step <= 2 * radius * (1 + 1e-9)
    assert multiplier * (2 * radius - step @ step) <= 1e-7 * size * np.sqrt(2 * radius)
    slack = -(values + whitened[1:] @ step)[in_force]
    assert (slack >= -1e-7 * np.sqrt(2 * radius) * (1 + lengths[1:][in_force])).all()
    assert (duals[in_force] * slack <= 1e-7 * size * np.sqrt(2 * radius)).all()


@given(
    st.integers(0, 2**32),
    st.sampled_from(["generic", "on the boundary", "objective in span"]),
    st.floats(-6, 6),
)
@settings(max_examples=30, deadline=None)
def test_the_step_ignores_the_scale_of_the_objective_and_of_each_constraint(seed, kind, log_scale):
    program = random_program(np.random.default_rng(seed), kind)
    problem = normalise(program)
    assume(min(abs(m) for m in reachable(problem)) > 1e-3)
    scaled = [program]
    for factors in 10.0 ** (log_scale * np.eye(3)):
        gradients, values = factors[:, None] * program.gradients, factors[1:] * program.values
        scaled.append(Program(kind, program.hessian, gradients, values, program.radius))
    base, *others = solve_programs(scaled)
    for other, solution in zip(scaled[1:], others, strict=True):
        assert solution.tier == base.tier
        np.testing.assert_allclose(normalise(other).step(solution), problem.step(base), atol=1e-6)


def test_single_precision_stays_near_double_precision_on_well_conditioned_programs():
    rng, kinds = np.random.default_rng(7), ("generic", "comfortably safe")
    programs = [random_program(rng, kind) for kind in kinds for _ in range(40)]
    compared = 0
    pairs = zip(
        programs, solve_programs(programs, np.float32), solve_programs(programs), strict=True
    )
    for program, single, double in pairs:
        problem = normalise(program)
        cosines = np.abs(problem.rows @ problem.rows.T)[np.triu_indices(3, 1)]
        far_from_tangent = (np.abs(np.abs(problem.excess) - 1) > 0.05).all()
        if cosines.max() > 0.9 or not far_from_tangent or min(map(abs, reachable(problem))) < 0.05:
            continue
        compared += 1
        assert single.tier == double.tier
        np.testing.assert_allclose(problem.step(single), problem.step(double), atol=2e-4)
    assert compared > 50


@given(
    st.lists(st.integers(-18, 18), min_size=3, max_size=3),
    st.lists(st.floats(-38, 38), min_size=2, max_size=2),
)
@settings(max_examples=60, deadline=None)
def test_extreme_scales_in_single_precision_never_give_nan(exponents, value_exponents):
    rows = np.array([[1, 2, -1], [0.5, 1, 1], [1, -1, 0.25]]) * 10.0 ** np.array(exponents)[:, None]
    values = np.sign(np.array([1, -1])) * 10.0 ** np.array(value_exponents)
    solution = solve_one(
        jnp.asarray(rows @ rows.T, jnp.float32), jnp.asarray(values, jnp.float32), 0.01
    )
    assert np.isfinite(np.asarray(solution.coefficients)).all()
    assert not any(np.isnan(np.asarray(leaf)).any() for leaf in jax.tree.leaves(solution))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["gram", "values", "radius"])
def test_non_finite_input_gives_no_step(bad, place):
    gram, values, radius = np.eye(3, dtype=np.float32), np.array([-0.1, -0.1], np.float32), 0.01
    if place == "gram":
        gram[1, 0] = bad
    elif place == "values":
        values[1] = bad
    else:
        radius = bad
    solution = solve_one(gram, values, radius)
    assert solution.tier == Tier.NO_STEP
    assert not np.asarray(solution.coefficients).any()
    assert np.asarray(solution.predicted_objective) == 0


@pytest.mark.parametrize(
    ("present", "values", "tier"),
    [
        ([1, 0, 0], [-1.0, -1.0], Tier.NOMINAL),  # nothing costs anything: natural gradient
        ([1, 0, 0], [0.0, 0.0], Tier.NOMINAL),  # 0 <= 0 holds whatever the step
        ([1, 0, 1], [0.3, -1.0], Tier.NO_STEP),  # bound violated and nothing lowers it
        ([1, 0, 1], [0.3, 0.05], Tier.BOUND_RESTORATION),  # the mean at least can be met
        ([1, 1, 0], [-1.0, 0.3], Tier.NO_STEP),  # mean violated and nothing lowers it
        ([0, 1, 1], [-1.0, -1.0], Tier.NO_STEP),  # nothing to gain, nothing to repair
        ([0, 1, 1], [0.05, -1.0], Tier.NOMINAL),  # nothing to gain, the bound can be met
        ([0, 1, 1], [0.5, -1.0], Tier.BOUND_RESTORATION),
        ([0, 0, 0], [-1.0, -1.0], Tier.NO_STEP),
    ],
)
def test_missing_gradients(present, values, tier):
    gram = jnp.diag(jnp.asarray(present, jnp.float32))
    solution = solve_one(gram, jnp.asarray(values), 0.01)
    assert solution.tier == tier
    assert np.asarray(solution.coefficients).any() == (tier != Tier.NO_STEP)
    if tier == Tier.NOMINAL:
        assert (np.asarray(solution.predicted_values) <= 1e-5).all()


def test_opposed_constraints_are_both_respected():
    """The paper drops the mean constraint when gradients are parallel; here that breaks it."""
    rows = np.array([[1.0, 0.2], [1.0, 0.0], [-1.0, 0.0]])
    values = jnp.array([-0.02, -0.01])
    solution = solve_one(jnp.asarray(rows @ rows.T), values, 0.5)
    assert solution.tier == Tier.NOMINAL
    assert (np.asarray(solution.predicted_values) <= 1e-5).all()
    assert solution.predicted_objective > 0.02
