"""The frozen policy of one seed, ready to act.

`start()` begins an episode with the same numpy handle as in exports (`numpy_policy`), so a policy
acts alike in a run and in an export.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jaxtyping import Array, Float

from canary.environments.protocol import Discrete, Environment
from canary.exporting.numpy_policy import FORMAT, Episode, NumpyPolicy
from canary.identity import Identity, RiskCritics, identify
from canary.networks import Distribution, Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount, policy_inputs

INPUTS = ("observation", "pace", "spent")
"""The pace is t / clock, or g_t if the metadata's `clock` is null."""


@dataclass(frozen=True)
class TrainedPolicy:
    """A policy as training left it."""

    policy: Policy
    statistics: RunningStatistics | None
    account: CostAccount
    environment: Environment
    """The environment of training."""
    critics: RiskCritics | None = None
    """Critics of the risk estimate; None for algorithms without them."""
    about: dict[str, Any] = field(default_factory=dict)
    """Origin of the policy, as plain data for the metadata of an export."""

    @cached_property
    def identity(self) -> Identity:
        return identify(self.policy, self.statistics, self.account, self.environment, self.critics)

    @property
    def sha256(self) -> str:
        """The digest of everything that determines the behaviour, as in certificates and exports."""
        return self.identity.sha256

    @property
    def interface(self) -> dict[str, Any] | None:
        """Conversion of the environment's observations and actions; None: they are not converted."""
        return getattr(self.environment, "policy_interface", None)

    def distribution(
        self,
        observation: Float[Array, "case obs"],
        pace: Float[Array, "case"],
        spent: Float[Array, "case ..."],
    ) -> Distribution:
        """The action distribution, with which every export is compared."""
        x = policy_inputs(observation, spent, pace, self.account, self.statistics)
        return self.policy(x)

    @property
    def outputs(self) -> list[str]:
        """The names of the distribution's parameters, which are the outputs of an export."""
        is_discrete = isinstance(self.environment.action_space, Discrete)
        return ["logits"] if is_discrete else ["mean", "log_std"]

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Everything except the arrays, as JSON data for exports."""
        identity = self.identity
        own = {
            "format": FORMAT,
            "inputs": list(INPUTS),
            "outputs": self.outputs,
            "interface": self.interface,
            "facts": sorted(identity.facts),
            "policy_sha256": identity.sha256,
        }
        return self.about | identity.facts | own

    def start(self, seed: int | None = None) -> Episode:
        """A new episode; with a `seed` its actions are reproducible."""
        return NumpyPolicy(self.metadata, self.identity.arrays).start(seed)
