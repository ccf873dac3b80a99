"""Comparisons as plain data: which variants are trained on which seeds, and what the paper reports
beside them.

Seeds 100 to 131 are for choosing settings (docs/lab-notebook.md); no study uses them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A row of the paper's table (tab:safety, 30 seeds); `safe` is a share of seeds, errors are
    standard errors over seeds."""

    violation: float
    jitter: float
    safe: float
    reward: float
    violation_error: float | None = None
    jitter_error: float | None = None
    reward_error: float | None = None


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One row of a study: an algorithm, and how its settings differ from the preset."""

    name: str
    about: str
    algorithm: str = "canary"
    preset: str = "fast"
    overrides: tuple[str, ...] = ()
    paper: PaperRow | None = None
    environment: str | None = None
    """Instead of the study's, as are the next two."""
    seeds: tuple[int, ...] | None = None
    total_steps: int | None = None
    is_named_by_preset: bool = False
    """Its name says what its preset does, so under another preset it is not what it is called."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Variants that share seeds and steps."""

    title: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    total_steps: int
    environment: str = "IcyLake"
    view: str = "study"
    """How its results are shown: the name of a view in `studies.views`."""
    units_of: str | None = None
    """The study whose units it shows, if they are not its own."""
    command: str | None = None
    """What makes it, if that is not `canary reproduce NAME`."""


_CANARY_PAPER = PaperRow(violation=0.016, jitter=0.0071, safe=0.87, reward=0.67)

_EARLIER = tuple(range(2100, 2110))  # of methods whose settings have not changed since

METHODS = Study(
    title="All methods on IcyLake (limit 5.5, epsilon 0.02)",
    seeds=tuple(range(4300, 4310)),
    total_steps=500_000,
    variants=(
        Variant(name="canary", about="shaped Cantelli bound", paper=_CANARY_PAPER),
        Variant(name="cpo", about="violation indicator", algorithm="cpo",
                paper=PaperRow(violation=0.041, jitter=0.0099, safe=0.07, reward=0.96)),
        Variant(name="cvar-cpo", about="conditional value at risk", algorithm="cvar-cpo",
                paper=PaperRow(violation=0.020, jitter=0.0075, safe=0.53, reward=0.93)),
        Variant(name="ppo", about="no constraint", algorithm="ppo", seeds=_EARLIER,
                paper=PaperRow(violation=0.308, jitter=0.0197, safe=0.0, reward=1.0)),
        Variant(name="cppo", about="CVaR penalty `state`, as published", algorithm="cppo", seeds=_EARLIER,
                paper=PaperRow(violation=0.354, jitter=0.0271, safe=0.0, reward=1.0)),
        Variant(name="cppo-post", about="CVaR penalty `post`, of what the action led to", algorithm="cppo", seeds=_EARLIER,
                overrides=("algo.penalty=post",)),
        Variant(name="ppo-lagrangian", about="a price on the violation indicator", algorithm="ppo-lagrangian",
                seeds=_EARLIER),
        Variant(name="ppo-lagrangian-pid", about="the same with a PID multiplier", algorithm="ppo-lagrangian",
                seeds=_EARLIER, overrides=("algo.multiplier=pid",)),
    ),
)  # fmt: skip

RELIABILITY = Study(
    title="Canary over 1M steps on IcyLake (limit 5.5, epsilon 0.02)",
    seeds=tuple(range(4100, 4110)),
    total_steps=1_000_000,
    variants=(
        Variant(name="canary", about="the `fast` preset: dead zone 0.8", paper=_CANARY_PAPER),
        Variant(name="adaptive", about="a dead zone that follows the violations",
                overrides=("algo.dead_zone=adaptive",)),
        Variant(name="unshaped", about="the paper's bound, on the cost itself", overrides=("algo.dead_zone=none",)),
    ),
)  # fmt: skip

# No policy satisfies Cantelli's own bound at limit 3.5, epsilon 0.05
HARD_LAKE = "SFFHF/HFFFH/FFFFF/FHHFF/HHHFG"

_ON_HARD_LAKE = ("constraint.limit=3.5", "constraint.epsilon=0.05", f"env.map={HARD_LAKE}")

ELSEWHERE = Study(
    title="Canary on other lakes, limits and thresholds",
    seeds=tuple(range(4200, 4210)),
    total_steps=1_000_000,
    variants=(
        Variant(name="limit-3.5", about="epsilon 0.02", overrides=("constraint.limit=3.5",)),
        Variant(name="limit-15", about="epsilon 0.02", overrides=("constraint.limit=15",)),
        Variant(name="epsilon-0.1", about="limit 5.5", overrides=("constraint.epsilon=0.1",)),
        Variant(name="8x8", about="limit 5.5, epsilon 0.02, horizon 200",
                overrides=("env.map=8x8", "env.horizon=200"), seeds=tuple(range(4900, 4910))),
        Variant(name="hard-lake", about="limit 3.5, epsilon 0.05, where Cantelli's own bound cannot be met",
                overrides=_ON_HARD_LAKE, total_steps=6_000_000, seeds=tuple(range(4200, 4205))),
    ),
)  # fmt: skip

SMALL_EPSILON = Study(
    title="Small thresholds on IcyLake (limit 5.5)",
    seeds=tuple(range(4400, 4405)),
    total_steps=500_000,
    variants=tuple(
        Variant(name=f"{name}-{epsilon}", about=f"epsilon {epsilon}{about}", algorithm=algorithm,
                overrides=(f"constraint.epsilon={epsilon}", *overrides))
        for epsilon in (0.005, 0.001)
        for name, about, algorithm, overrides in (
            ("canary", "", "canary", ()),
            ("unshaped", ", the paper's bound, on the cost itself", "canary", ("algo.dead_zone=none",)),
            ("cpo", "", "cpo", ()),
        )
    ),
)  # fmt: skip

POINT_GOAL = Study(
    title="Canary on PointGoal (limit 100, epsilon 0.02)",
    environment="PointGoal",
    seeds=tuple(range(3800, 3810)),
    total_steps=4_000_000,
    variants=(Variant(name="canary", about="the `fast` preset"),),
)

POINT_GOAL_METHODS = Study(
    title="Methods on PointGoal (limit 100, epsilon 0.02)",
    environment="PointGoal",
    seeds=tuple(range(3800, 3804)),
    total_steps=4_000_000,
    variants=(
        Variant(name="canary", about="shaped Cantelli bound"),
        Variant(name="cpo", about="violation indicator", algorithm="cpo"),
        Variant(name="cvar-cpo", about="conditional value at risk", algorithm="cvar-cpo"),
        Variant(name="ppo", about="no constraint", algorithm="ppo"),
    ),
)

POINT_GOAL_2500 = Study(
    title="Canary on PointGoal2500 (limit 100, epsilon 0.02)",
    environment="PointGoal2500",
    seeds=tuple(range(3600, 3610)),
    total_steps=12_000_000,
    variants=(
        Variant(name="canary", about="the `fast` preset",
                paper=PaperRow(violation=0.011, jitter=0.0061, safe=0.87, reward=4.0)),
    ),
)  # fmt: skip

ECO_ANT = Study(
    title="Canary on EcoAnt (limit 150, epsilon 0.02)",
    environment="EcoAnt",
    seeds=tuple(range(1500, 1505)),
    total_steps=10_000_000,
    variants=(
        Variant(name="canary", about="the `fast` preset",
                paper=PaperRow(violation=0.002, jitter=0.0014, safe=1.0, reward=81.0)),
    ),
)  # fmt: skip

# What `fast` changes on long episodes, each with the setting that takes it back to the paper's.
_INGREDIENTS = {
    "mixed-restoration": (
        "a fifth of a restoring step for the reward",
        ("algo.restoration_share=1",),
    ),
    "dead-zone": ("a dead zone of 0.3", ("algo.dead_zone=none",)),
    "second-moment": ("restoration of the second moment", ("algo.restoration=bound",)),
    "damping": ("damping 1", ("algo.damping=0.1",)),
    "target-lambda": ("critic targets with lambda 0.97", ("algo.target_lambda=none",)),
    "time": ("critics that see the time", ("algo.time_feature=false",)),
    "batch": ("batches of 10,000 steps", ("training.environments=20",)),
    "radius": ("radius 0.03, falling to 0.001", ("algo.target_kl=0.01", "algo.target_kl_end=none")),
    "signal": ("surrogates in units of their signal", ("algo.surrogate_scale=episode",)),
    "moments": ("moments of five batches", ("algo.window_batches=1",)),
    "small-networks": ("networks of 64-64", ("algo.hidden=256,256",)),
}

ABLATION = Study(
    title="What each ingredient of Canary does on PointGoal (limit 100, epsilon 0.02)",
    environment="PointGoal",
    seeds=tuple(range(3700, 3704)),
    total_steps=1_000_000,
    variants=(
        Variant(name="default", about="the `fast` preset: all together"),
        *(Variant(name=f"without-{name}", about=f"all but: {about}", overrides=back)
          for name, (about, back) in _INGREDIENTS.items()),
    ),
)  # fmt: skip

STUDIES: dict[str, Study] = {
    "methods": METHODS,
    "reliability": RELIABILITY,
    "elsewhere": ELSEWHERE,
    "small-epsilon": SMALL_EPSILON,
    "point-goal": POINT_GOAL,
    "point-goal-methods": POINT_GOAL_METHODS,
    "point-goal-2500": POINT_GOAL_2500,
    "eco-ant": ECO_ANT,
    "ablation": ABLATION,
}
