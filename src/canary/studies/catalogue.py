"""Studies as data: rows, their seeds, and the paper's results for them.

The `paper` preset follows the paper's equations and hyper-parameters; `authors` also follows the
details of its authors' code (docs/readings.md). The paper's PointGoal is `PointGoal2500` here.
Settings were chosen on seeds 100 to 131, 7400 to 7479, 8100 to 8109 and 3660 to 3689, which no
study uses.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Row:
    """One configuration of a study."""

    name: str
    seeds: Sequence[int]
    steps: int | None
    """Environment steps per seed; None: the preset's."""
    about: str = ""
    environment: str = "IcyLake"
    algorithm: str = "canary"
    preset: str = "fast"
    overrides: tuple[str, ...] = ()
    constraint: Mapping[str, float | str] = field(default_factory=dict)
    """Any of `kind`, `limit` and `epsilon`; the environment gives the others."""
    cost: str | None = None
    """Where the cost of another package's environment is, such as info:cost."""
    paper: Mapping[str, float] | None = None
    """The published row, as in PUBLISHED."""


@dataclass(frozen=True)
class Study:
    """Rows to compare."""

    title: str
    rows: tuple[Row, ...] = ()
    view: str = "study"
    """The name of its view (table and figure) in `studies.table.VIEWS`."""
    units_of: str | None = None
    """The study that stores its rows, if that is another."""
    command: str | None = None
    """The command that makes it; None: `canary reproduce NAME`."""


# The paper's table (tab:safety, 30 seeds). `safe` is the share of safe seeds; errors are standard
# errors over seeds.
PUBLISHED_COLUMNS = (
    "violation", "jitter", "safe", "reward", "violation_error", "jitter_error", "reward_error"
)  # fmt: skip
PUBLISHED = {
    environment: {
        algorithm: dict(zip(PUBLISHED_COLUMNS, values, strict=True))
        for algorithm, values in rows.items()
    }
    for environment, rows in {
        "EcoAnt": {
            "canary": (0.002, 0.0014, 1.00, 81, 0.000, 0.0002, 3),
            "ppo": (0.694, 0.0366, 0.00, 1321, 0.003, 0.0021, 7),
            "cpo": (0.030, 0.0042, 0.00, 203, 0.000, 0.0004, 6),
            "cppo": (0.048, 0.0209, 0.03, 48, 0.003, 0.0022, 5),
            "cvar-cpo": (0.038, 0.0168, 0.00, 123, 0.002, 0.0036, 5),
        },
        "PointGoal2500": {
            "canary": (0.011, 0.0061, 0.87, 4.0, 0.001, 0.0014, 0.6),
            "ppo": (0.512, 0.0231, 0.00, 69.0, 0.006, 0.0042, 0.0),
            "cpo": (0.060, 0.0310, 0.00, 12.1, 0.002, 0.0026, 1.2),
            "cppo": (0.045, 0.0222, 0.47, 7.3, 0.010, 0.0040, 1.6),
            "cvar-cpo": (0.015, 0.0118, 0.87, 6.4, 0.001, 0.0015, 2.0),
        },
        "IcyLake": {
            "canary": (0.016, 0.0071, 0.87, 0.67, 0.007, 0.0027, 0.06),
            "ppo": (0.308, 0.0197, 0.00, 1.0, 0.002, 0.0012, 0.00),
            "cpo": (0.041, 0.0099, 0.07, 0.96, 0.003, 0.0009, 0.00),
            "cppo": (0.354, 0.0271, 0.00, 1.0, 0.002, 0.0015, 0.00),
            "cvar-cpo": (0.020, 0.0075, 0.53, 0.93, 0.002, 0.0013, 0.01),
        },
    }.items()
}
SHORT = {"EcoAnt": "eco-ant", "PointGoal2500": "point-goal", "IcyLake": "icy-lake"}
TRUST_REGION = ("canary", "cpo", "cvar-cpo")
FAST = "the `fast` preset"
SMALL = ("algo.estimation.hidden=64,64",)

# Seeds and steps of `fast`; number of these seeds and steps of `paper`; seeds of `authors`
TABLE1_SCALE = {
    "EcoAnt": (range(1500, 1503), 10_000_000, 2, 1_000_000, range(1550, 1552)),
    "PointGoal2500": (range(3600, 3604), 2_000_000, 2, 2_000_000, range(3650, 3652)),
    "IcyLake": (range(4100, 4110), 1_000_000, 5, 1_000_000, range(4800, 4810)),
}


def _table1(environment: str) -> Iterator[Row]:
    """Rows of every method with `fast`, and of Canary with `paper` and `authors`. The lake also has
    rows of the other methods with these presets, and of `authors` with the paper's networks of
    256-256, which take hours on a robot."""
    seeds, steps, paper_seeds, paper_steps, fresh = TABLE1_SCALE[environment]
    is_lake = environment == "IcyLake"
    for algorithm, paper in PUBLISHED[environment].items():
        name = f"{SHORT[environment]}-{algorithm}"
        row = Row(name, seeds, steps, FAST, environment, algorithm, paper=paper)
        yield row
        if algorithm != "canary" and not is_lake:
            continue
        few, about = seeds[:paper_seeds], "the `paper` preset"
        row = replace(row, name=f"{name}-published", seeds=few, steps=paper_steps, about=about)
        yield replace(row, preset="paper")
        if algorithm not in TRUST_REGION:
            continue
        row = replace(row, seeds=fresh, steps=steps, preset="authors")
        if is_lake:
            large = replace(row, name=f"{name}-authors", about="the `authors` preset")
            as_many = range(4800, 4830)  # as in the paper
            yield replace(large, seeds=as_many) if algorithm == "canary" else large
            if algorithm == "cvar-cpo":  # 20 episodes say little about the worst 2%
                about = "`authors`, moments of 100 episodes"
                name100, wide = f"{name}-authors-100", ("algo.window=100",)
                yield replace(large, name=name100, about=about, overrides=wide)
        about = "`authors`, networks of 64-64"
        yield replace(row, name=f"{name}-authors-64", about=about, overrides=SMALL)


def _epsilon_sweep() -> Iterator[Row]:
    about = "the paper's update, authors' reading, 64-64"
    authors = Row("authors", range(4620, 4630), 500_000, about, preset="authors", overrides=SMALL)
    shaped = Row("shaped", range(4610, 4615), 500_000, "the bound on the shaped cost")
    for row in (authors, shaped):
        for epsilon in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3):
            constraint = {"limit": 15, "epsilon": epsilon}
            yield replace(row, name=f"{row.name}-{epsilon}", constraint=constraint)


def _small_epsilon() -> Iterator[Row]:
    seeds, steps = range(4410, 4415), 500_000
    for epsilon in (0.005, 0.001):
        for row in (
            Row("canary", seeds, steps, "the bound on the shaped cost"),
            Row("published", seeds, steps, "the bound on the cost itself", preset="paper"),
            Row("cpo", seeds, steps, "violation indicator", algorithm="cpo"),
        ):
            yield replace(row, name=f"{row.name}-{epsilon}", constraint={"epsilon": epsilon})


def _cppo(environment: str, gain: float, step: float, init: float | None = None) -> Row:
    """A point of CPPO's grid, trained for at least 200 updates; fewer do not decide."""
    scales = {"IcyLake": (5, 300_000), "EcoAnt": (2, 1_000_000), "PointGoal2500": (2, 2_000_000)}
    seeds, steps = scales[environment]
    name = f"{SHORT[environment]}-gain-{gain:g}-step-{step:g}"
    overrides = (f"algo.proportional_gain={gain:g}", f"algo.multiplier_step={step:g}")
    if init is not None:
        name, overrides = f"{name}-init-{init:g}", (*overrides, f"algo.multiplier_init={init:g}")
    about = f"CPPO on {environment}"
    row = Row(name, range(2400, 2400 + seeds), steps, about, environment, "cppo")
    return replace(row, overrides=overrides)


def _cppo_search() -> Iterator[Row]:
    for gain in (0, 15, 60, 150):
        yield from (_cppo("IcyLake", gain, step) for step in (1e-3, 3e-2, 3e-1))
    for environment in ("PointGoal2500", "EcoAnt"):
        for gain in (60, 100, 150):
            for step in (0.01, 0.03):
                yield from (_cppo(environment, gain, step, init) for init in (1, 50))
    yield from (_cppo("PointGoal2500", gain, 0.01, 50) for gain in (300, 600))
    yield from (_cppo("EcoAnt", gain, 0.03, 50) for gain in (300, 600, 1200, 2400))


METHODS = {
    "canary": "shaped Cantelli bound",
    "cpo": "violation indicator",
    "cvar-cpo": "conditional value at risk",
    "ppo": "no constraint",
    "cppo": "CVaR penalty `state`, as published",
    "cppo-post": "CVaR penalty `post`",
    "ppo-lagrangian": "a price on the violation indicator",
}


def _method(name: str, environment: str, first_seed: int, seeds: int, steps: int) -> Row:
    fresh = range(first_seed, first_seed + seeds)
    row = Row(name, fresh, steps, METHODS[name], environment, name)
    if name == "cppo-post":
        return replace(row, algorithm="cppo", overrides=("algo.penalty=post",))
    return replace(row, paper=PUBLISHED.get(environment, {}).get(name))


def _canary(environment: str, first_seed: int, seeds: int, steps: int) -> Row:
    return replace(_method("canary", environment, first_seed, seeds, steps), about=FAST)


def _budgets(environment: str, first_seed: int, seeds: int, *millions: int) -> tuple[Row, ...]:
    """Canary with several numbers of steps, each with its own schedules."""
    rows = {m: _canary(environment, first_seed, seeds, m * 1_000_000) for m in millions}
    return tuple(replace(row, name=f"canary-{m}M") for m, row in rows.items())


def _ablation() -> Iterator[Row]:
    for environment, steps in (("PointGoal2500", 6_000_000), ("EcoAnt", 3_000_000)):
        for name, about, algorithm, *overrides in (
            ("canary", FAST, "canary"),
            ("no-clock", "networks see no clock", "canary", "algo.clock=false"),
            ("no-dead-zone", "dead zone 0", "canary", "algo.dead_zone=0"),
            ("whole-episode", "A^c undiscounted", "canary", "algo.local_discount=1"),
            ("short-window", "bound of the last 20 episodes", "canary", "algo.window=20"),
            ("wide-start", "initial deviation 1", "canary", "algo.initial_std=1"),
            ("indicator", "PPO-Lagrangian on the violation indicator", "ppo-lagrangian"),
        ):
            if (environment, name) == ("PointGoal2500", "wide-start"):
                continue  # its preset starts there
            name = f"{SHORT[environment]}-{name}"
            row = Row(name, range(5200, 5204), steps, about, environment, algorithm)
            yield replace(row, overrides=tuple(overrides))


# No policy satisfies Cantelli's own bound here, at limit 3.5 and epsilon 0.05.
HARD_LAKE = "SFFHF/HFFFH/FFFFF/FHHFF/HHHFG"


def _elsewhere() -> Iterator[Row]:
    lake = Row("limit-3.5", range(4230, 4240), 1_000_000, "epsilon 0.02", constraint={"limit": 3.5})
    yield lake
    yield replace(lake, name="limit-15", constraint={"limit": 15})
    yield replace(lake, name="epsilon-0.1", about="limit 5.5", constraint={"epsilon": 0.1})
    about, settings = "limit 5.5, epsilon 0.02, horizon 200", ("env.map=8x8", "env.horizon=200")
    yield Row("8x8", range(4930, 4940), 1_000_000, about, overrides=settings)
    about, settings = "Cantelli's own bound cannot be met here", (f"env.map={HARD_LAKE}",)
    hard = Row("hard-lake", range(4230, 4235), 6_000_000, about, overrides=settings)
    yield replace(hard, constraint={"limit": 3.5, "epsilon": 0.05})


TABLE1 = tuple(row for environment in PUBLISHED for row in _table1(environment))
# The figures of the paper show its own update: the authors' reading beside the equations.
PUBLISHED_CANARY = tuple(
    row for row in TABLE1 if row.algorithm == "canary" and row.preset != "fast"
)
CURVES = tuple(
    row
    for row in TABLE1
    if row.preset == "authors"
    or (
        row.preset == "paper"
        and (row.environment != "IcyLake" or row.algorithm not in TRUST_REGION)
    )
)

ALL_STUDIES: dict[str, Study] = {
    "table1": Study(
        "The paper's table: five methods on three environments (epsilon 0.02)", TABLE1, "table1"
    ),
    "training-curves": Study(
        "Training on three environments (epsilon 0.02)", CURVES, "training-curves", "table1"
    ),
    "relative-variance": Study(
        "Relative variance of the constraints on IcyLake", view="relative-variance"
    ),
    "worst-case": Study(
        "The worst-case bounds on IcyLake, update by update (cost discount 0.99)", view="worst-case"
    ),
    "epsilon-sweep": Study(
        "Canary over epsilon on IcyLake (limit 15)", tuple(_epsilon_sweep()), "epsilon-sweep"
    ),
    "anatomy": Study(
        "Anatomy of the conservatism (epsilon 0.02)", PUBLISHED_CANARY, "anatomy", "table1"
    ),
    "gaussian-tail": Study(
        "Gaussian tails underestimate risk (epsilon 0.02)",
        PUBLISHED_CANARY,
        "gaussian-tail",
        "table1",
    ),
    "cppo-search": Study(
        "CPPO's 12-point grids, and larger gains on the robots (epsilon 0.02)",
        tuple(_cppo_search()),
    ),
    "methods": Study(
        "All methods on IcyLake (limit 5.5, epsilon 0.02)",
        tuple(
            _method(name, "IcyLake", 4310 if name in TRUST_REGION else 2100, 10, 500_000)
            for name in METHODS
        ),
    ),
    "reliability": Study(
        "Canary over 1M steps on IcyLake (limit 5.5, epsilon 0.02)",
        (_canary("IcyLake", 4150, 10, 1_000_000),),
    ),
    "elsewhere": Study("Canary on other lakes, limits and thresholds", tuple(_elsewhere())),
    "small-epsilon": Study("Small thresholds on IcyLake (limit 5.5)", tuple(_small_epsilon())),
    "point-goal": Study(
        "Canary on PointGoal (limit 100, epsilon 0.02)",
        (_canary("PointGoal", 3850, 10, 4_000_000),),
    ),
    "point-goal-methods": Study(
        "Methods on PointGoal (limit 100, epsilon 0.02)",
        tuple(
            _method(name, "PointGoal", 3850 if name == "canary" else 3810, 4, 4_000_000)
            for name in ("canary", "cpo", "cvar-cpo", "ppo")
        ),
    ),
    "point-goal-2500": Study(
        "Canary on PointGoal2500 (limit 100, epsilon 0.02)",
        _budgets("PointGoal2500", 3690, 10, 12, 2),
    ),
    "eco-ant": Study(
        "Canary on EcoAnt (limit 150, epsilon 0.02)", _budgets("EcoAnt", 1530, 5, 4, 10)
    ),
    "ablation": Study("Canary with one ingredient changed (epsilon 0.02)", tuple(_ablation())),
}
