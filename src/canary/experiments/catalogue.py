"""The paper's settings as plain data."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class PaperSetting:
    """One column of the paper's table of environment-level settings (tab:env-settings)."""

    limit: float
    epsilon: float
    environments: int
    rollout_length: int
    total_steps: int


PAPER_SETTINGS: dict[str, PaperSetting] = {
    "EcoAnt": PaperSetting(
        limit=150.0, epsilon=0.02, environments=20, rollout_length=100, total_steps=10_000_000
    ),
    "PointGoal": PaperSetting(
        limit=100.0, epsilon=0.02, environments=20, rollout_length=125, total_steps=2_000_000
    ),
    "IcyLake": PaperSetting(
        limit=5.5, epsilon=0.02, environments=5, rollout_length=200, total_steps=1_000_000
    ),
}

Settings = dict[str, float | str]

# The paper's table of baseline hyper-parameters (tab:baseline-hyperparams), by algorithm and environment.
# CPPO's ratio clip and minibatch size are not in it: PPO's are used; nor is what its advantage is
# standardised over: as in the authors' public code for discrete and for continuous actions. For other
# environments, and for the trust-region methods everywhere, the defaults of the algorithms hold.
PAPER_ALGORITHMS: dict[str, dict[str, Settings]] = {
    "ppo": {
        "EcoAnt": {"ratio_clip": 0.2, "epochs": 4, "minibatch_size": 500, "entropy": 1e-5},
        "PointGoal": {"ratio_clip": 0.2, "epochs": 4, "minibatch_size": 500, "entropy": 0.0075},
        "IcyLake": {"ratio_clip": 0.2, "epochs": 4, "minibatch_size": 40, "entropy": 0.01},
    },
    "cppo": {
        "EcoAnt": {
            "multiplier_init": 50.0, "multiplier_step": 0.03, "proportional_gain": 600.0,
            "cvar_clip_ratio": 1000.0, "standardise": "batch",
            "ratio_clip": 0.2, "epochs": 10, "minibatch_size": 500, "entropy": 0.0075,
        },
        "PointGoal": {
            "multiplier_init": 50.0, "multiplier_step": 0.01, "proportional_gain": 60.0,
            "cvar_clip_ratio": 300.0, "standardise": "batch",
            "ratio_clip": 0.2, "epochs": 4, "minibatch_size": 500, "entropy": 0.0075,
        },
        "IcyLake": {
            "multiplier_init": 1.0, "multiplier_step": 0.03, "proportional_gain": 15.0,
            "cvar_clip_ratio": 300.0, "standardise": "minibatch",
            "ratio_clip": 0.2, "epochs": 4, "minibatch_size": 40, "entropy": 0.01,
        },
    },
}  # fmt: skip

# A longer horizon is all that this one changes; docs/environments/point_goal.md says why it exists.
PAPER_SETTINGS["PointGoal2500"] = PAPER_SETTINGS["PointGoal"]
for _by_environment in PAPER_ALGORITHMS.values():
    _by_environment["PointGoal2500"] = _by_environment["PointGoal"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What differs from the settings above: by algorithm, and by environment and algorithm, there also in the batches."""

    algorithms: dict[str, Settings] = field(default_factory=dict)
    environments: dict[str, dict[str, Settings]] = field(default_factory=dict)
    batches: dict[str, dict[str, Settings]] = field(default_factory=dict)

    def changes(self, environment: str, algorithm: str) -> Settings:
        return self.algorithms.get(algorithm, {}) | self.environments.get(environment, {}).get(algorithm, {})

    def batch(self, environment: str, algorithm: str) -> Settings:
        return self.batches.get(environment, {}).get(algorithm, {})


# The trust-region methods share their update, and these changes to it. docs/algorithms/canary.md says what each does:
# cheaper critics and curvature, cost advantages of less noise, constraint values from more episodes, surrogates in the
# units that their gradient deserves, and steps that get shorter.
_FAST_TRUST_REGION: Settings = {
    "critic.epochs": 4, "critic.minibatches": 8, "fisher_states": 1000,
    "cost_gae_lambda": 0.7, "window_batches": 5, "surrogate_scale": "signal",
    "target_kl_end": 0.001,
}  # fmt: skip

# Episodes that outlast a batch make two batches alike in their noise too, so there signal is what environments share.
_LONG_EPISODES: dict[str, Settings] = {
    name: {"signal_between": "environments"} for name in ("canary", "cpo", "cvar-cpo")
}

PRESETS: dict[str, Preset] = {
    # The paper's hyper-parameters: the defaults of the algorithms' settings.
    "paper": Preset(),
    "fast": Preset(
        algorithms={
            "canary": _FAST_TRUST_REGION | {"restoration": "second-moment"},
            "cpo": _FAST_TRUST_REGION,
            "cvar-cpo": _FAST_TRUST_REGION,
        },
        # Four times the batch: a quarter of the updates, each with half the noise. PPO takes as many gradient steps in
        # each. CPPO and CVaR-CPO, whose critics need more updates than 500,000 steps then have, keep the paper's batch.
        batches={"IcyLake": {name: {"environments": 20} for name in ("canary", "cpo", "ppo")}},
        environments={
            "IcyLake": {"ppo": {"minibatch_size": 160}},
            **dict.fromkeys(("PointGoal", "PointGoal2500", "EcoAnt"), _LONG_EPISODES),
        },
    ),
}
