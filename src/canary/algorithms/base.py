"""An algorithm is a record of two pure functions. All algorithms share the settings below."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
from jaxtyping import PRNGKeyArray, PyTree

from canary.algorithms.critics import Critics
from canary.constraints import Kind
from canary.environments.protocol import ActionSpace
from canary.networks import Policy
from canary.numerics.costs import EpisodeWindow
from canary.types import Metrics, Rollout, Terms
from canary.values import Count, Layers, Positive, PositiveShare, Settings, Share, Whole


@dataclass(frozen=True, kw_only=True)
class Task:
    """The problem that an algorithm is made for."""

    input_size: int
    action_space: ActionSpace
    horizon: int = 1
    """Largest number of steps of an episode."""
    constraint: Kind | tuple[Kind, ...] = "chance"
    """The kind of constraint, or one kind for each of several costs."""
    merge_capacity: int = 0
    """A trust-region update evaluates its networks once per distinct input if a batch has at most
    this many; 0: on every sample."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of constraint of each cost."""
        return self.constraint if isinstance(self.constraint, tuple) else (self.constraint,)


@dataclass(frozen=True, kw_only=True)
class EstimationConfig(Settings):
    """Networks, inputs and estimates of returns: shared by all algorithms."""

    hidden: Layers = (256, 256)
    """Units of each hidden tanh layer, in the policy and in each scalar critic."""
    initial_std: Positive | None = 1.0
    """Standard deviation of a continuous policy at the start; none: chosen by a few untrained
    episodes (`canary.exploration`)."""
    reward_discount: PositiveShare = 0.99
    """Discount of the reward, gamma."""
    cost_discount: PositiveShare = 1.0
    """Discount of the cost, gamma_c. Below 1, the episode cost is the discounted sum."""
    gae_lambda: Share = 0.95
    """Decay of generalised advantage estimation, lambda."""
    window: Count = 20
    """Smallest number of recent episodes in the cost statistics. If more episodes end in a batch,
    all of them count."""
    warmup_episodes: Whole = 10
    """Episodes that must end before the first trust-region step, or before CPPO's multiplier first
    changes."""
    observe_spent: bool | None = None
    """Whether the policy sees the pace g_t and the spent cost y_t; none: only if the method needs
    them. PPO, CPPO with the `state` penalty and limits on a mean do not need them. Critics of the
    trust-region methods always see them."""
    budget_layer: bool = False
    """Whether the weights of the first layer depend on the spent cost, so that a policy can act
    differently when little of the limit is left (clipped methods only)."""
    clock: bool = False
    """Whether networks see t / horizon instead of g_t = gamma_c^t, which is constant at gamma_c = 1."""


class Learner(eqx.Module):
    """Everything that learns."""

    policy: Policy
    critics: Critics
    extra: PyTree = None
    """State that a method keeps between updates, besides its networks."""


@dataclass(frozen=True)
class Algorithm:
    """`init(key)` makes a learner; `update(learner, rollout, episodes, terms, key)` improves it by
    one batch."""

    init: Callable[[PRNGKeyArray], Learner]
    update: Callable[
        [Learner, Rollout, EpisodeWindow, Terms, PRNGKeyArray], tuple[Learner, Metrics]
    ]
