"""Policies and critics (tanh networks), and the two action distributions, which are pytrees."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from canary.environments.protocol import ActionSpace, Continuous, Discrete

# Keeps the KL divergence and its curvature finite if a policy stops exploring
LOG_STD_FLOOR = -5.0
# Observations have deviations of about 1, and most episodes spend less than half of their limit
SPENT_SCALE = 2.0


class MLP(eqx.Module):
    """Fully connected tanh network with a linear head; acts on the last axis of a batch of any
    shape.

    It reads as many leading entries of its input as its first layer has rows. So a smaller network
    does not see the last entries of x = (s, g, y), such as the spent cost.

    With `budgets` = n the weights of the first layer depend on the last n inputs, the spent costs y
    in limits: W(y) = W_0 + sum_i s clip(y_i, 0, 1) W_i with s = `SPENT_SCALE`. Without this a small
    network hardly reacts to the spent cost.
    """

    # A stack of networks has an additional axis.
    weights: tuple[Float[Array, "*stack _ _"], ...]
    biases: tuple[Float[Array, "*stack _"], ...]
    budgets: int = eqx.field(static=True, default=0)

    def __call__(self, x: Float[Array, "*batch input"]) -> Float[Array, "*batch output"]:
        x = x[..., : self.weights[0].shape[0] // (1 + self.budgets)]
        shares = SPENT_SCALE * jnp.clip(x[..., x.shape[-1] - self.budgets :], 0, 1)
        x = jnp.concatenate([x, *(shares[..., i, None] * x for i in range(self.budgets))], -1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jnp.tanh(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


def make_mlp(
    key: PRNGKeyArray, sizes: Sequence[int], *, head_scale: float, budgets: int = 0
) -> MLP:
    """Orthogonal weights, sqrt(2) in hidden layers and `head_scale` in the head; zero biases."""
    shapes = list(pairwise(((1 + budgets) * sizes[0], *sizes[1:])))
    scales = [2**0.5] * (len(shapes) - 1) + [head_scale]
    ends = [
        sum(rows * columns for rows, columns in shapes[: index + 1]) for index in range(len(shapes))
    ]
    # One draw for all layers: each call of the generator takes compile time.
    draws = jnp.split(jax.random.normal(key, (ends[-1],)), ends[:-1])
    weights = tuple(
        scale * orthogonal(draw.reshape(shape))
        for scale, draw, shape in zip(scales, draws, shapes, strict=True)
    )
    return MLP(weights, tuple(jnp.zeros(fan_out) for fan_out in sizes[1:]), budgets)


def orthogonal(matrix: Float[Array, "rows columns"]) -> Float[Array, "rows columns"]:
    """The nearest matrix with orthonormal rows, or columns if these are fewer.

    X <- 1.5 X - 0.5 X X' X moves every singular value to 1, without a LAPACK call, which takes
    seconds to compile and can deadlock threads.
    """
    rows, columns = matrix.shape
    wide = matrix if rows <= columns else matrix.T
    # About the largest singular value of a Gaussian matrix
    start = wide / (rows**0.5 + columns**0.5)
    result = jax.lax.fori_loop(0, 40, lambda _, x: 1.5 * x - 0.5 * (x @ x.T) @ x, start)
    return result if rows <= columns else result.T


class Categorical(eqx.Module):
    logits: Float[Array, "*batch action"]

    def noise(self, key: PRNGKeyArray) -> Float[Array, "*batch action"]:
        """The randomness of a sample, which does not depend on the logits."""
        return jax.random.gumbel(key, self.logits.shape)

    def choose(self, noise: Float[Array, "*batch action"]) -> Int[Array, "*batch"]:
        return (noise + self.logits).argmax(-1)

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*batch"]:
        return self.choose(self.noise(key))

    def mode(self) -> Int[Array, "*batch"]:
        return self.logits.argmax(-1)

    def log_prob(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        log_p = jax.nn.log_softmax(self.logits)
        # A one-hot product, whose gradient is a product; that of a gather is a slow scatter.
        return (log_p * jax.nn.one_hot(action, log_p.shape[-1])).sum(-1)

    def entropy(self) -> Float[Array, "*batch"]:
        log_p = jax.nn.log_softmax(self.logits)
        return -(jnp.exp(log_p) * log_p).sum(-1)

    def exploration(self) -> Float[Array, ""]:
        """(e^H - 1) / (n - 1), with H the mean entropy: 0 if deterministic, 1 if uniform."""
        others = max(self.logits.shape[-1] - 1, 1)
        return jnp.expm1(self.entropy().mean()) / others

    def kl_from(self, old: Any) -> Float[Array, "*batch"]:
        """KL(self || old), where `old` is a distribution of the same kind."""
        log_p, log_q = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(old.logits)
        return (jnp.exp(log_p) * (log_p - log_q)).sum(-1)


class Gaussian(eqx.Module):
    mean: Float[Array, "*batch action"]
    log_std: Float[Array, "*batch action"]

    def noise(self, key: PRNGKeyArray) -> Float[Array, "*batch action"]:
        return jax.random.normal(key, self.mean.shape)

    def choose(self, noise: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        return self.mean + jnp.exp(self.log_std) * noise

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*batch action"]:
        return self.choose(self.noise(key))

    def mode(self) -> Float[Array, "*batch action"]:
        return self.mean

    def log_prob(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch"]:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return (-0.5 * z**2 - self.log_std - 0.5 * jnp.log(2 * jnp.pi)).sum(-1)

    def entropy(self) -> Float[Array, "*batch"]:
        return (self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum(-1)

    def exploration(self) -> Float[Array, ""]:
        """Width e^(H/d) of the d actions relative to [-1, 1], with H the mean entropy."""
        return jnp.exp(self.entropy().mean() / self.mean.shape[-1]) / 2

    def kl_from(self, old: Any) -> Float[Array, "*batch"]:
        """KL(self || old), where `old` is a distribution of the same kind."""
        ratio = jnp.exp(2 * (self.log_std - old.log_std))
        shift = ((self.mean - old.mean) * jnp.exp(-old.log_std)) ** 2
        return (0.5 * (ratio + shift - 1) + old.log_std - self.log_std).sum(-1)


Distribution = Categorical | Gaussian


class CategoricalPolicy(eqx.Module):
    network: MLP

    def __call__(self, x: Float[Array, "*batch input"]) -> Categorical:
        return Categorical(self.network(x))


class GaussianPolicy(eqx.Module):
    """A Gaussian policy whose standard deviation is a learnt vector, equal in all states."""

    network: MLP
    log_std: Float[Array, "action"]

    def __call__(self, x: Float[Array, "*batch input"]) -> Gaussian:
        mean = self.network(x)
        return Gaussian(
            mean, jnp.broadcast_to(jnp.maximum(self.log_std, LOG_STD_FLOOR), mean.shape)
        )


Policy = CategoricalPolicy | GaussianPolicy


def within_bounds(policy: Policy) -> Policy:
    """The policy with log deviations raised to the floor, below which they have no gradient."""
    if isinstance(policy, CategoricalPolicy):
        return policy
    return GaussianPolicy(policy.network, jnp.maximum(policy.log_std, LOG_STD_FLOOR))


def make_policy(
    key: PRNGKeyArray,
    input_size: int,
    space: ActionSpace,
    hidden: Sequence[int],
    initial_std: float | None = None,
    budgets: int = 0,
) -> Policy:
    """A policy whose head is scaled by 0.01, so that it starts almost uniform, or centred with
    deviation `initial_std` (default 1)."""
    match space:
        case Discrete(count):
            sizes = (input_size, *hidden, count)
            return CategoricalPolicy(make_mlp(key, sizes, head_scale=0.01, budgets=budgets))
        case Continuous(size):
            sizes = (input_size, *hidden, size)
            network = make_mlp(key, sizes, head_scale=0.01, budgets=budgets)
            return GaussianPolicy(network, jnp.full(size, math.log(initial_std or 1.0)))


def make_critics(
    key: PRNGKeyArray, count: int, input_size: int, hidden: Sequence[int], budgets: int = 0
) -> MLP:
    """`count` scalar critics of one shape, stacked along the first axis of every array."""
    sizes = (input_size, *hidden, 1)
    return jax.vmap(lambda k: make_mlp(k, sizes, head_scale=1.0, budgets=budgets))(
        jax.random.split(key, count)
    )


def critic_values(critics: MLP, x: Float[Array, "*batch input"]) -> Float[Array, "critic *batch"]:
    return jax.vmap(lambda critic: critic(x)[..., 0])(critics)
