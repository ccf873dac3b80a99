"""Whole-number settings as arguments of a program: what it makes of them is what Python makes of
them, or they are compiled in."""

import operator

import jax
import jax.numpy as jnp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from canary.environments.whole_numbers import LARGEST, reckons_exactly

NUMBERS = (
    st.integers(-LARGEST, LARGEST) | st.integers(-9, 9) | st.sampled_from([2**16, 46341, 46340])
)
OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_,
}  # fmt: skip
TERMS = st.recursive(
    st.sampled_from(["one", "other"]) | st.integers(-3, 40),
    lambda inner: st.tuples(st.sampled_from(sorted(OPERATORS)), inner, inner),
    max_leaves=5,
)


def compute(term, one, other):
    """The value of a term; of Python's numbers in Python, of traced ones in a program."""
    if isinstance(term, tuple):
        name, left, right = term
        left, right = compute(left, one, other), compute(right, one, other)
        if name in ("**", "<<", ">>") and isinstance(right, int) and abs(right) > 64:
            raise ValueError("too large to try")
        return OPERATORS[name](left, right)
    return {"one": one, "other": other}.get(term, term) if isinstance(term, str) else term


@settings(deadline=None)
@given(term=TERMS, one=NUMBERS, other=NUMBERS)
@example(term=("**", 2, -1), one=0, other=0)
@example(term=("**", "one", "other"), one=2, other=-1)
def test_what_passes_is_what_python_computes(term, one, other):
    try:
        expected = compute(term, one, other)
        program = jax.make_jaxpr(lambda one, other: compute(term, one, other))(one, other)
    except Exception:  # no value in Python, or not to be traced: then it is compiled in
        return
    if reckons_exactly(program, (one, other)):
        (found,) = jax.core.eval_jaxpr(program.jaxpr, program.consts, one, other)
        if isinstance(expected, float):  # 2 ** -1: then it may be no whole number in the program
            assert jnp.asarray(found).dtype.kind == "f"
        else:
            assert int(found) == expected


@pytest.mark.parametrize(
    ("function", "numbers", "exact"),
    [
        (lambda a, b: a * b, (46340, 46340), True),
        (lambda a, b: a * b, (46341, 46341), False),
        (lambda a, b: a + b - b, (LARGEST, 1), False),  # also where the end would fit again
        (lambda a, b: a**2 + b, (46340, 0), True),
        (lambda a, b: 2**a + b, (31, 0), False),
        (lambda a, b: b**a, (-1, 3), False),  # a fraction in Python
        (lambda a, b: a // b, (7, -2), True),
        (lambda a, b: jnp.full(3, a) * b, (10**6, 10**6), True),  # 32 bits in any case
        (lambda a, b: a * 1.5 * b, (10**6, 10**6), True),  # no whole number
        (lambda a, b: jax.jit(lambda x: x * b)(a), (10**6, 10**6), False),
        (lambda a, b: jax.lax.cond(True, lambda: a * b, lambda: 0), (10**6, 10**6), False),
        (lambda a, b: jax.lax.scan(lambda c, _: (c + a * b, None), 0, None, 3), (10**6, 10**6), False),
        (lambda a, b: jax.lax.while_loop(lambda c: c < a * b, lambda c: c + 1, 0), (10**6, 10**6), False),
        (lambda a, b: jax.lax.scan(lambda c, _: (c + a * b, None), 0, None, 3), (100, 100), True),
        (lambda a, b: jnp.cumsum(jnp.stack([a, b])), (LARGEST, LARGEST), True),
        (lambda a, b: jax.lax.population_count(a) + b, (5, 5), False),  # not followed
        (lambda a, b: jnp.int32(LARGEST) + jnp.int32(1) + 0 * a * b, (5, 5), True),  # no setting's
    ],
)  # fmt: skip
def test_products_that_do_not_fit_are_found_wherever_they_are(function, numbers, exact):
    assert reckons_exactly(jax.make_jaxpr(function)(*numbers), numbers) is exact
