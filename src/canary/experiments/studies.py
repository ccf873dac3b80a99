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

# What `fast` does to the noise of the update, each with the paper's setting that takes it back.
_INGREDIENTS = {
    "lambda": ("decay 0.7 for cost advantages", ("algo.cost_gae_lambda=0.95",)),
    "batch": ("batches of 4000 steps", ("training.environments=5",)),
    "moments": ("moments of five batches", ("algo.window_batches=1",)),
    "scale": ("surrogates in units of their signal", ("algo.surrogate_scale=step",)),
    "radius": ("steps that get shorter", ("algo.target_kl_end=none",)),
    "restoration": ("restoration of the second moment", ("algo.restoration=bound",)),
}


def _without(*ingredients: str) -> tuple[str, ...]:
    return tuple(change for name in ingredients for change in _INGREDIENTS[name][1])


def _alone(ingredient: str) -> tuple[str, ...]:
    return _without(*(name for name in _INGREDIENTS if name != ingredient))


ABLATION = Study(
    title="What each ingredient of Canary does on IcyLake (limit 5.5, epsilon 0.02)",
    seeds=tuple(range(400, 408)),
    total_steps=300_000,
    variants=(
        Variant(name="default", about="the `fast` preset: all together"),
        *(Variant(name=f"without-{name}", about=f"all but: {about}", overrides=_without(name))
          for name, (about, _) in _INGREDIENTS.items()),
        Variant(name="none", about="the paper's update with `fast` critics", overrides=_without(*_INGREDIENTS)),
        *(Variant(name=f"only-{name}", about=f"alone: {about}", overrides=_alone(name))
          for name, (about, _) in _INGREDIENTS.items()),
        Variant(name="paper", about="the `paper` preset", preset="paper"),
    ),
)  # fmt: skip

_HEED_REWARD = ("algo.tolerated_loss=0.2",)

OPTIONS = Study(
    title="What the options of Canary do on IcyLake (limit 5.5, epsilon 0.02)",
    seeds=ABLATION.seeds,
    total_steps=ABLATION.total_steps,
    variants=(
        ABLATION.variants[0],
        Variant(name="episode-scale", about="surrogates in true units, no allowance for noise",
                overrides=("algo.surrogate_scale=episode",)),
        Variant(name="damping-0.01", about="a tenth of the damping", overrides=("algo.damping=0.01",)),
        Variant(name="reward", about="restoration that heeds the reward", overrides=_HEED_REWARD),
        Variant(name="structured-critic", about="second-moment value composed from parts",
                overrides=("algo.structured_critic=true",)),
        Variant(name="calibrated", about="measured multiple of sigma", overrides=("algo.calibration=true",)),
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
    title="Canary on other lakes, limits and thresholds",
    seeds=tuple(range(200, 210)),
    total_steps=1_000_000,
    variants=(
        Variant(name="limit-3.5", about="epsilon 0.02", overrides=("constraint.limit=3.5",)),
        Variant(name="limit-15", about="epsilon 0.02", overrides=("constraint.limit=15",)),
        Variant(name="epsilon-0.05", about="limit 5.5", overrides=("constraint.epsilon=0.05",)),
        Variant(name="epsilon-0.1", about="limit 5.5", overrides=("constraint.epsilon=0.1",)),
        Variant(name="8x8", about="limit 5.5, epsilon 0.02", overrides=("env.map=8x8",)),
        Variant(name="8x8-reward", about="the same, and restoration that heeds the reward",
                overrides=("env.map=8x8", *_HEED_REWARD)),
        Variant(name="limit-3.5-reward", about="restoration that heeds the reward",
                overrides=("constraint.limit=3.5", *_HEED_REWARD)),
    ),
)  # fmt: skip

POINT_GOAL = Study(
    title="Canary on PointGoal (limit 100, epsilon 0.02)",
    environment="PointGoal",
    seeds=tuple(range(500, 508)),
    total_steps=600_000,
    variants=(
        Variant(name="default", about="the `fast` preset: all together"),
        Variant(name="without-lambda", about="all but: decay 0.7 for cost advantages", overrides=_without("lambda")),
        Variant(name="reward", about="restoration that heeds the reward", overrides=_HEED_REWARD),
        Variant(name="signal-of-updates", about="signal is what two updates share, not two halves of the environments",
                overrides=("algo.signal_between=updates",)),
        # Batches are the paper's here anyway.
        Variant(name="none", about="the paper's update with `fast` critics", overrides=_alone("batch")),
    ),
)  # fmt: skip

STUDIES: dict[str, Study] = {
    "methods": METHODS,
    "ablation": ABLATION,
    "options": OPTIONS,
    "reliability": RELIABILITY,
    "elsewhere": ELSEWHERE,
    "point-goal": POINT_GOAL,
}
