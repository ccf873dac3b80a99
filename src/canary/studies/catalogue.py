"""Studies as data: which rows are trained on which seeds, and what the paper reports beside them.

Rows with the `paper` preset use the paper's equations and hyper-parameters, rows with `authors` the
details of its authors' code, too (docs/readings.md). Settings were chosen on
seeds 100 to 131 and 7400 to 7417 (docs/lab-notebook.md); no study uses those. PointGoal in the
paper is `PointGoal2500` here (docs/environments/point_goal.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A row of the paper's table (tab:safety, 30 seeds). `safe` is the share of safe seeds; errors
    are standard errors over seeds."""

    violation: float
    jitter: float
    safe: float
    reward: float
    violation_error: float
    jitter_error: float
    reward_error: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One configuration of a study."""

    name: str
    about: str = ""
    environment: str = "IcyLake"
    algorithm: str = "canary"
    preset: str = "fast"
    overrides: tuple[str, ...] = ()
    constraint: Mapping[str, float | str] = field(default_factory=dict)
    """Any of `kind`, `limit` and `epsilon`; the environment states the others."""
    cost: str | None = None
    """Where the cost of another package's environment is."""
    seeds: Sequence[int]
    steps: int | None
    """Environment steps per seed; None: as many as the preset says."""
    paper: PaperRow | None = None


@dataclass(frozen=True, kw_only=True)
class Study:
    """Rows that are compared."""

    title: str
    rows: tuple[Row, ...]
    view: str = "study"
    """The table and figure that are made of it: a name in `studies.view.VIEWS`."""
    units_of: str | None = None
    """The study whose results it shows, if it has none of its own."""
    command: str | None = None
    """The command that makes it; None: `canary reproduce NAME`."""


def _published(violation: tuple, jitter: tuple, safe: float, reward: tuple) -> PaperRow:
    """Pairs of mean and standard error as the paper prints them; its jitter is in thousandths."""
    return PaperRow(
        violation=violation[0], violation_error=violation[1], safe=safe,
        jitter=jitter[0] / 1e3, jitter_error=jitter[1] / 1e3,
        reward=reward[0], reward_error=reward[1],
    )  # fmt: skip


PUBLISHED = {  # tab:safety
    "EcoAnt": {
        "canary": _published((0.002, 0.000), (1.4, 0.2), 1.00, (81, 3)),
        "ppo": _published((0.694, 0.003), (36.6, 2.1), 0.00, (1321, 7)),
        "cpo": _published((0.030, 0.000), (4.2, 0.4), 0.00, (203, 6)),
        "cppo": _published((0.048, 0.003), (20.9, 2.2), 0.03, (48, 5)),
        "cvar-cpo": _published((0.038, 0.002), (16.8, 3.6), 0.00, (123, 5)),
    },
    "PointGoal2500": {
        "canary": _published((0.011, 0.001), (6.1, 1.4), 0.87, (4.0, 0.6)),
        "ppo": _published((0.512, 0.006), (23.1, 4.2), 0.00, (69.0, 0.0)),
        "cpo": _published((0.060, 0.002), (31.0, 2.6), 0.00, (12.1, 1.2)),
        "cppo": _published((0.045, 0.010), (22.2, 4.0), 0.47, (7.3, 1.6)),
        "cvar-cpo": _published((0.015, 0.001), (11.8, 1.5), 0.87, (6.4, 2.0)),
    },
    "IcyLake": {
        "canary": _published((0.016, 0.007), (7.1, 2.7), 0.87, (0.67, 0.06)),
        "ppo": _published((0.308, 0.002), (19.7, 1.2), 0.00, (1.0, 0.00)),
        "cpo": _published((0.041, 0.003), (9.9, 0.9), 0.07, (0.96, 0.00)),
        "cppo": _published((0.354, 0.002), (27.1, 1.5), 0.00, (1.0, 0.00)),
        "cvar-cpo": _published((0.020, 0.002), (7.5, 1.3), 0.53, (0.93, 0.01)),
    },
}
SHORT = {"EcoAnt": "eco-ant", "PointGoal2500": "point-goal", "IcyLake": "icy-lake"}

# The paper's table. Rows per environment: seeds and steps of `fast`; then the methods that are also
# trained with the `paper` preset, on the first few of these seeds, and for how many steps.
_TABLE1 = {
    "EcoAnt": (range(1500, 1503), 10_000_000, ("canary",), 2, 1_000_000),
    "PointGoal2500": (range(3600, 3604), 2_000_000, ("canary",), 2, 2_000_000),
    "IcyLake": (range(4100, 4110), 1_000_000, ("canary", "cpo", "cvar-cpo"), 5, 1_000_000),
}
# The authors' reading at the paper's steps: methods, seeds, and whether with the paper's networks of
# 256-256, too. On the robots one seed of those takes hours.
_SMALL = ("algo.estimation.hidden=64,64",)
_AUTHORS = {
    "EcoAnt": (("canary",), range(1550, 1552), False),
    "PointGoal2500": (("canary",), range(3650, 3652), False),
    "IcyLake": (("canary", "cpo", "cvar-cpo"), range(4800, 4810), True),
}


def _table1_rows(environment: str) -> list[Row]:
    seeds, steps, as_published, few, published_steps = _TABLE1[environment]
    rows = []
    for algorithm, paper in PUBLISHED[environment].items():
        name = f"{SHORT[environment]}-{algorithm}"
        row = Row(name=name, about="the `fast` preset", environment=environment,
                  algorithm=algorithm, seeds=seeds, steps=steps, paper=paper)  # fmt: skip
        rows.append(row)
        if algorithm in as_published:
            rows.append(replace(row, name=f"{name}-published", about="the `paper` preset",
                                preset="paper", seeds=seeds[:few], steps=published_steps))  # fmt: skip
        methods, fresh, at_full_size = _AUTHORS[environment]
        if algorithm in methods:
            small = replace(row, name=f"{name}-authors-64", about="`authors`, networks of 64-64",
                            preset="authors", overrides=_SMALL, seeds=fresh)  # fmt: skip
            full = replace(
                small, name=f"{name}-authors", about="the `authors` preset", overrides=()
            )
            rows += [full, small] if at_full_size else [small]
    return rows


TABLE1 = Study(
    title="The paper's table: five methods on three environments (epsilon 0.02)",
    view="table1",
    rows=tuple(row for environment in PUBLISHED for row in _table1_rows(environment)),
)
_CANARY_ROWS = tuple(row for row in TABLE1.rows if row.algorithm == "canary")

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
EPSILON_SWEEP = Study(
    title="Canary over epsilon on IcyLake (limit 15)",
    view="epsilon-sweep",
    rows=tuple(
        Row(name=f"{family}-{epsilon}", about=about, preset=preset, overrides=overrides,
            constraint={"limit": 15, "epsilon": epsilon}, seeds=seeds, steps=500_000)
        for family, about, preset, overrides, seeds in (
            ("authors", "the paper's update, authors' reading, 64-64", "authors", _SMALL, range(4620, 4630)),
            ("shaped", "the bound on the shaped cost", "fast", (), range(4600, 4605)),
        )
        for epsilon in EPSILONS
    ),
)  # fmt: skip


def _cppo(environment: str, gain: float, step: float, init: float | None = None) -> Row:
    name = f"{SHORT[environment]}-gain-{gain:g}-step-{step:g}"
    overrides = [f"algo.proportional_gain={gain:g}", f"algo.multiplier_step={step:g}"]
    if init is not None:
        overrides, name = [*overrides, f"algo.multiplier_init={init:g}"], f"{name}-init-{init:g}"
    # 200 updates or more: fewer decide nothing
    count, steps = {"IcyLake": (5, 300_000), "EcoAnt": (2, 1_000_000)}.get(
        environment, (2, 2_000_000)
    )
    return Row(name=name, about=f"CPPO on {environment}", environment=environment,
               algorithm="cppo", overrides=tuple(overrides), seeds=range(2400, 2400 + count),
               steps=steps)  # fmt: skip


CPPO_SEARCH = Study(
    title="CPPO's 12-point grids, and larger gains on the robots (epsilon 0.02)",
    rows=(
        *(_cppo("IcyLake", gain, step) for gain in (0, 15, 60, 150) for step in (1e-3, 3e-2, 3e-1)),
        *(
            _cppo(environment, gain, step, init)
            for environment in ("PointGoal2500", "EcoAnt")
            for gain in (60, 100, 150) for step in (0.01, 0.03) for init in (1, 50)
        ),
        *(_cppo("PointGoal2500", gain, 0.01, 50) for gain in (300, 600)),
        *(_cppo("EcoAnt", gain, 0.03, 50) for gain in (300, 600, 1200, 2400)),
    ),
)  # fmt: skip

_METHODS = {
    "canary": ("shaped Cantelli bound", "canary", ()),
    "cpo": ("violation indicator", "cpo", ()),
    "cvar-cpo": ("conditional value at risk", "cvar-cpo", ()),
    "ppo": ("no constraint", "ppo", ()),
    "cppo": ("CVaR penalty `state`, as published", "cppo", ()),
    "cppo-post": ("CVaR penalty `post`", "cppo", ("algo.penalty=post",)),
    "ppo-lagrangian": ("a price on the violation indicator", "ppo-lagrangian", ()),
}  # fmt: skip
_TRUST_REGION = ("canary", "cpo", "cvar-cpo")


def _method(name: str, environment: str, seeds: Sequence[int], steps: int) -> Row:
    about, algorithm, overrides = _METHODS[name]
    paper = None if overrides else PUBLISHED.get(environment, {}).get(algorithm)
    return Row(name=name, about=about, environment=environment, algorithm=algorithm,
               overrides=overrides, seeds=seeds, steps=steps, paper=paper)  # fmt: skip


def _lone(environment: str, seeds: Sequence[int], steps: int) -> tuple[Row, ...]:
    return (replace(_method("canary", environment, seeds, steps), about="the `fast` preset"),)


def _budgets(environment: str, seeds: Sequence[int], budgets: Sequence[int]) -> tuple[Row, ...]:
    """The same with several numbers of steps: a run's schedules depend on them."""
    return tuple(
        replace(_lone(environment, seeds, steps)[0], name=f"canary-{steps // 1_000_000}M")
        for steps in budgets
    )


# No policy satisfies Cantelli's own bound here, at limit 3.5 and epsilon 0.05.
HARD_LAKE = "SFFHF/HFFFH/FFFFF/FHHFF/HHHFG"

ALL_STUDIES: dict[str, Study] = {
    "table1": TABLE1,
    "training-curves": Study(
        title="Training on three environments (epsilon 0.02)",
        view="training-curves", units_of="table1", rows=TABLE1.rows,
    ),
    "relative-variance": Study(
        title="Relative variance of the constraints on IcyLake", view="relative-variance", rows=(),
    ),
    "worst-case": Study(
        title="The worst-case bounds on IcyLake, update by update (cost discount 0.99)",
        view="worst-case", rows=(),
    ),
    "epsilon-sweep": EPSILON_SWEEP,
    "anatomy": Study(
        title="Anatomy of the conservatism (epsilon 0.02)",
        view="anatomy", units_of="table1", rows=_CANARY_ROWS,
    ),
    "gaussian-tail": Study(
        title="Gaussian tails underestimate risk (epsilon 0.02)",
        view="gaussian-tail", units_of="table1", rows=_CANARY_ROWS,
    ),
    "cppo-search": CPPO_SEARCH,
    "methods": Study(
        title="All methods on IcyLake (limit 5.5, epsilon 0.02)",
        rows=tuple(
            _method(name, "IcyLake", range(4300, 4310) if name in _TRUST_REGION else range(2100, 2110), 500_000)
            for name in _METHODS
        ),
    ),
    "reliability": Study(
        title="Canary over 1M steps on IcyLake (limit 5.5, epsilon 0.02)",
        rows=_lone("IcyLake", range(4120, 4130), 1_000_000),
    ),
    "elsewhere": Study(
        title="Canary on other lakes, limits and thresholds",
        rows=(
            Row(name="limit-3.5", about="epsilon 0.02", constraint={"limit": 3.5},
                seeds=range(4200, 4210), steps=1_000_000),
            Row(name="limit-15", about="epsilon 0.02", constraint={"limit": 15},
                seeds=range(4200, 4210), steps=1_000_000),
            Row(name="epsilon-0.1", about="limit 5.5", constraint={"epsilon": 0.1},
                seeds=range(4200, 4210), steps=1_000_000),
            Row(name="8x8", about="limit 5.5, epsilon 0.02, horizon 200", seeds=range(4900, 4910),
                overrides=("env.map=8x8", "env.horizon=200"), steps=1_000_000),
            Row(name="hard-lake", about="Cantelli's own bound cannot be met here",
                constraint={"limit": 3.5, "epsilon": 0.05}, overrides=(f"env.map={HARD_LAKE}",),
                seeds=range(4200, 4205), steps=6_000_000),
        ),
    ),
    "small-epsilon": Study(
        title="Small thresholds on IcyLake (limit 5.5)",
        rows=tuple(
            Row(name=f"{name}-{epsilon}", about=about, algorithm=algorithm, preset=preset,
                constraint={"epsilon": epsilon}, seeds=range(4400, 4405), steps=500_000)
            for epsilon in (0.005, 0.001)
            for name, about, algorithm, preset in (
                ("canary", "the bound on the shaped cost", "canary", "fast"),
                ("published", "the bound on the cost itself", "canary", "paper"),
                ("cpo", "violation indicator", "cpo", "fast"),
            )
        ),
    ),
    "point-goal": Study(
        title="Canary on PointGoal (limit 100, epsilon 0.02)",
        rows=_lone("PointGoal", range(3810, 3820), 4_000_000),
    ),
    "point-goal-methods": Study(
        title="Methods on PointGoal (limit 100, epsilon 0.02)",
        rows=tuple(_method(name, "PointGoal", range(3810, 3814), 4_000_000)
                   for name in ("canary", "cpo", "cvar-cpo", "ppo")),
    ),
    "point-goal-2500": Study(
        title="Canary on PointGoal2500 (limit 100, epsilon 0.02)",
        rows=_budgets("PointGoal2500", range(3610, 3620), (12_000_000, 2_000_000)),
    ),
    "eco-ant": Study(
        title="Canary on EcoAnt (limit 150, epsilon 0.02)",
        rows=_budgets("EcoAnt", range(1510, 1515), (4_000_000, 10_000_000)),
    ),
    "ablation": Study(
        title="Canary with one ingredient changed (epsilon 0.02)",
        rows=tuple(
            Row(name=f"{SHORT[environment]}-{name}", about=about, environment=environment,
                algorithm=algorithm, overrides=overrides, seeds=range(5200, 5204), steps=steps)
            for environment, steps in (("PointGoal2500", 6_000_000), ("EcoAnt", 3_000_000))
            for name, about, algorithm, overrides in (
                ("canary", "the `fast` preset", "canary", ()),
                ("no-clock", "networks see no clock", "canary", ("algo.clock=false",)),
                ("no-dead-zone", "dead zone 0", "canary", ("algo.dead_zone=0",)),
                ("whole-episode", "A^c undiscounted", "canary", ("algo.local_discount=1",)),
                ("short-window", "bound of the last 20 episodes", "canary", ("algo.window=20",)),
                ("wide-start", "initial deviation 1", "canary", ("algo.initial_std=1",)),
                ("indicator", "PPO-Lagrangian on the violation indicator", "ppo-lagrangian", ()),
            )
            if (environment, name) != ("PointGoal2500", "wide-start")  # its preset starts there
        ),
    ),
}  # fmt: skip
