"""The surrogates of one batch as functions of the policy's parameters theta (paper eq.
varcpo-constraint).

    L(theta)   = mean_t[ ratio_t A_t ]                of the reward
    Z(theta)   = scale * mean_t[ g_t ratio_t A^i_t ]  of each cost signal i
    L_i(theta) = bound_i(Z(theta))                    of each constraint

with ratio_t = pi_theta(a_t | x_t) / pi_k(a_t | x_t). One function gives the value of a constraint,
its gradient and the test of the line search, so these cannot drift apart.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Shaped

from canary.algorithms.inputs import Inputs
from canary.networks import Distribution, Policy

Parameters = Float[Array, "params"]
Bound = Callable[[Float[Array, "signal"]], Float[Array, "constraint"]]
"""The constraint surrogates L_i from the surrogate changes Z of the signals; <= 0 is safe."""


class Samples(eqx.Module):
    """A flattened batch as the policy update sees it."""

    action: Shaped[Array, "sample ..."]
    reward_advantage: Float[Array, "sample"]
    cost_advantages: Float[Array, "signal sample"]
    """Centred advantage of every signal that the constraints are made of."""
    weight: Float[Array, "sample"]
    """Weight g_t of each step in the constraints."""


class Levels(eqx.Module):
    """All surrogates at one theta."""

    reward: Float[Array, ""]
    constraints: Float[Array, "constraint"]
    kl: Float[Array, ""]
    """Mean KL divergence from the old policy: the larger one of the mean over the batch and the
    mean weighted with g_t, which is the one of the paper's theorem."""


@dataclass(frozen=True)
class Surrogates:
    """The surrogates of a batch, at any theta."""

    policy: Policy
    """pi_k, which collected the batch."""
    inputs: Inputs
    old: Distribution
    """What pi_k says on the inputs: computed once, compared with at every theta."""
    samples: Samples
    bound: Bound
    scale: Float[Array, ""]

    def parameters(self) -> Parameters:
        return ravel_pytree(self.policy)[0]

    def policy_at(self, theta: Parameters) -> Policy:
        return ravel_pytree(self.policy)[1](theta)

    def distribution(self, theta: Parameters) -> Distribution:
        return self.inputs.evaluate(self.policy_at(theta))

    def __call__(self, theta: Parameters) -> Levels:
        new, old, samples = self.distribution(theta), self.old, self.samples
        ratio = jnp.exp(new.log_prob(samples.action) - old.log_prob(samples.action))
        change = self.scale * (samples.cost_advantages * samples.weight * ratio).mean(1)
        kl = new.kl_from(old)
        discounted = (kl * samples.weight).mean() / samples.weight.mean()
        return Levels(
            reward=(ratio * samples.reward_advantage).mean(),
            constraints=self.bound(change),
            kl=jnp.maximum(kl.mean(), discounted),
        )

    def gradients(self, theta: Parameters) -> tuple[Levels, Float[Array, "vector params"]]:
        """The surrogates at theta and the gradients (g, b_1, ...) of reward and constraints
        there."""

        def stacked(theta: Parameters) -> tuple[Float[Array, "vector"], Levels]:
            levels = self(theta)
            return jnp.append(levels.reward, levels.constraints), levels

        values, pullback, levels = jax.vjp(stacked, theta, has_aux=True)
        return levels, jax.vmap(lambda row: pullback(row)[0])(jnp.eye(values.shape[0]))
