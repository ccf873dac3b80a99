"""The paper's settings as plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PaperSetting:
    """One column of the paper's table of environment-level settings (tab:env-settings)."""

    limit: float
    epsilon: float
    environments: int
    rollout_length: int
    total_steps: int


PAPER_SETTINGS: dict[str, PaperSetting] = {
    "IcyLake": PaperSetting(
        limit=5.5, epsilon=0.02, environments=5, rollout_length=200, total_steps=1_000_000
    ),
}

PRESETS: dict[str, dict[str, str]] = {
    # The paper's table of hyper-parameters: the defaults of the algorithms' settings.
    "paper": {},
    # The same algorithm with cheaper critic fits: see docs/algorithms/canary.md for what was measured.
    "fast": {"critic.epochs": "8", "critic.minibatches": "4"},
}
