"""Comparisons as plain data: which variants are trained on which seeds, and what the paper reports beside them.

No setting was chosen on the seeds of a study: seeds 100 to 107 were for that.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A row of the paper's table (tab:safety, 30 seeds, 1M steps); `safe` is a share of seeds."""

    violation: float
    jitter: float
    safe: float
    reward: float


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One row of a study: an algorithm, and how its settings differ from the preset."""

    name: str
    about: str
    algorithm: str = "canary"
    preset: str = "fast"
    overrides: tuple[str, ...] = ()
    paper: PaperRow | None = None


@dataclass(frozen=True, kw_only=True)
class Study:
    """Variants that share seeds and steps."""

    title: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    total_steps: int
    environment: str = "IcyLake"


METHODS = Study(
    title="All methods on IcyLake (limit 5.5, epsilon 0.02)",
    seeds=tuple(range(300, 305)),
    total_steps=500_000,
    variants=(
        Variant(name="canary", about="Cantelli bound on mean and variance",
                paper=PaperRow(violation=0.016, jitter=0.0071, safe=0.87, reward=0.67)),
        Variant(name="ppo", about="no constraint", algorithm="ppo",
                paper=PaperRow(violation=0.308, jitter=0.0197, safe=0.0, reward=1.0)),
        Variant(name="cpo", about="violation indicator", algorithm="cpo",
                paper=PaperRow(violation=0.041, jitter=0.0099, safe=0.07, reward=0.96)),
        Variant(name="cppo", about="CVaR penalty `state`, as published", algorithm="cppo",
                paper=PaperRow(violation=0.354, jitter=0.0271, safe=0.0, reward=1.0)),
        Variant(name="cppo-post", about="CVaR penalty `post`, of what the action led to", algorithm="cppo",
                overrides=("algo.penalty=post",)),
        Variant(name="cvar-cpo", about="conditional value at risk", algorithm="cvar-cpo",
                paper=PaperRow(violation=0.020, jitter=0.0075, safe=0.53, reward=0.93)),
    ),
)  # fmt: skip

_PAPER_DECAY = ("algo.cost_gae_lambda=0.95",)

ABLATION = Study(
    title="What each ingredient of Canary does on IcyLake (limit 5.5, epsilon 0.02)",
    seeds=tuple(range(400, 408)),
    total_steps=300_000,
    variants=(
        Variant(name="default", about="the `fast` preset"),
        Variant(name="lambda-0.95", about="the paper's decay for cost advantages", overrides=_PAPER_DECAY),
        Variant(name="lambda-0.85", about="", overrides=("algo.cost_gae_lambda=0.85",)),
        Variant(name="lambda-0.5", about="", overrides=("algo.cost_gae_lambda=0.5",)),
        Variant(name="episode-scale", about="constraint surrogates in true units",
                overrides=("algo.surrogate_scale=episode",)),
        Variant(name="structured-critic", about="second-moment value composed from parts",
                overrides=("algo.structured_critic=true",)),
        Variant(name="structured-critic-0.95", about="the same with the paper's decay",
                overrides=("algo.structured_critic=true", *_PAPER_DECAY)),
        Variant(name="damping-0.01", about="a tenth of the damping", overrides=("algo.damping=0.01",)),
        Variant(name="window-100", about="moments of 100 episodes instead of a batch's",
                overrides=("algo.window=100",)),
        Variant(name="calibrated", about="measured multiple of sigma", overrides=("algo.calibration=true",)),
        Variant(name="paper", about="the `paper` preset", preset="paper"),
    ),
)  # fmt: skip

RELIABILITY = Study(
    title="Canary over 1M steps on IcyLake (limit 5.5, epsilon 0.02)",
    seeds=tuple(range(200, 210)),
    total_steps=1_000_000,
    variants=(
        Variant(name="canary", about="the `fast` preset",
                paper=PaperRow(violation=0.016, jitter=0.0071, safe=0.87, reward=0.67)),
        Variant(name="calibrated", about="measured multiple of sigma", overrides=("algo.calibration=true",)),
    ),
)  # fmt: skip

ELSEWHERE = Study(
    title="Canary, settings untouched, on other lakes, limits and thresholds",
    seeds=tuple(range(200, 210)),
    total_steps=1_000_000,
    variants=(
        Variant(name="limit-3.5", about="epsilon 0.02", overrides=("constraint.limit=3.5",)),
        Variant(name="limit-15", about="epsilon 0.02", overrides=("constraint.limit=15",)),
        Variant(name="epsilon-0.05", about="limit 5.5", overrides=("constraint.epsilon=0.05",)),
        Variant(name="epsilon-0.1", about="limit 5.5", overrides=("constraint.epsilon=0.1",)),
        Variant(name="8x8", about="limit 5.5, epsilon 0.02", overrides=("env.map=8x8",)),
    ),
)  # fmt: skip

STUDIES: dict[str, Study] = {
    "methods": METHODS,
    "ablation": ABLATION,
    "reliability": RELIABILITY,
    "elsewhere": ELSEWHERE,
}
