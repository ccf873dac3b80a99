"""Network inputs of a trust-region update. Each distinct input is evaluated once.

In a finite environment a batch of a thousand steps has a few hundred distinct inputs x = (s, g, y).
Evaluating networks on the distinct rows and copying the results gives every loss, gradient and
Fisher product of the batch exactly, with less arithmetic.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Result = TypeVar("Result")


class Inputs(eqx.Module):
    """Rows to evaluate, and a 0-1 matrix that maps samples to rows (None: each sample is a row)."""

    rows: Float[Array, "row input"]
    row_of_sample: Float[Array, "sample row"] | None = None

    @property
    def merged(self) -> bool:
        return self.row_of_sample is not None

    def evaluate(self, network: Callable[[Array], Result]) -> Result:
        """`network` on every sample of the batch; its result may be any pytree of arrays [row,
        ...]."""
        result = network(self.rows)
        if self.row_of_sample is None:
            return result
        # A product with the 0-1 matrix copies exactly. The backward pass of a gather would be a
        # scatter, which XLA runs one element at a time on a CPU.
        return jax.tree.map(lambda leaf: self.row_of_sample @ leaf, result)

    def gather(self, values: Float[Array, "row output"]) -> Float[Array, "sample output"]:
        """Each sample's row of `values`. For rows as wide as the quantiles, this takes half the
        time of the product in `evaluate`."""
        return values if self.row_of_sample is None else values[self.row_of_sample.argmax(1)]

    def row_weights(self, weight: Float[Array, "sample"] | None = None) -> Float[Array, "row"]:
        """Share of the batch that reads each row; samples count by weight."""
        count = self.rows.shape[0]
        if self.row_of_sample is None:
            return jnp.full(count, 1 / count, self.rows.dtype) if weight is None else weight / count
        if weight is None:
            return self.row_of_sample.mean(0)
        return weight @ self.row_of_sample / weight.shape[0]

    def averaged(self, values: Float[Array, "kind sample"]) -> Float[Array, "kind row"]:
        """Mean over the samples of each row; 0 for a row without samples."""
        if self.row_of_sample is None:
            return values
        return values @ self.row_of_sample / jnp.maximum(self.row_of_sample.sum(0), 1)


def merge_duplicates(
    rows: Float[Array, "sample input"], capacity: int
) -> tuple[Inputs, Int[Array, ""], Bool[Array, ""]]:
    """The distinct rows padded to `capacity`, their number, and whether they represent the batch
    exactly.

    Sorting by a random projection puts equal rows together. A comparison at the end finds different
    rows with equal projections, and more rows than the capacity.
    """
    projection = jax.random.normal(jax.random.key(0), (rows.shape[1],))
    # A sum, not a matrix product: equal rows must give equal bits wherever they stand.
    label = (rows * projection).sum(1)
    order = jnp.argsort(label)
    starts = jnp.concatenate([jnp.zeros(1, bool), label[order][1:] != label[order][:-1]])
    group = jnp.zeros(rows.shape[0], jnp.int32).at[order].set(jnp.cumsum(starts, dtype=jnp.int32))
    source = jnp.minimum(group, capacity - 1)
    distinct = jnp.zeros((capacity, rows.shape[1]), rows.dtype).at[source].set(rows)
    exact = (distinct[source] == rows).all()
    reads = jax.nn.one_hot(source, capacity, dtype=rows.dtype)
    return Inputs(distinct, reads), group.max() + 1, exact


def on_distinct_rows(
    rows: Float[Array, "sample input"], capacity: int, compute: Callable[[Inputs], Result]
) -> Result:
    """`compute` on the merged inputs if that is exact, else on the rows themselves; capacity 0
    never merges. A trained policy visits few inputs, so smaller sizes are compiled too."""
    if capacity == 0:
        return compute(Inputs(rows))
    merged, count, exact = merge_duplicates(rows, capacity)
    sizes = [max(capacity * eighths // 8, 1) for eighths in (1, 3, 8)]

    def on_first(size: int) -> Result:
        assert merged.row_of_sample is not None
        return compute(Inputs(merged.rows[:size], merged.row_of_sample[:, :size]))

    branches = [*(partial(on_first, size) for size in sizes), lambda: compute(Inputs(rows))]
    smallest = jnp.searchsorted(jnp.array(sizes), count)  # the first size that holds them all
    return jax.lax.switch(jnp.where(exact, smallest, len(sizes)), branches)
