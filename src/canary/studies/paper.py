"""The paper's tables and figures as studies: what is trained, at a scale for two CPU cores, and the
published rows.

`--scale paper` trains all of it with the paper's equations, steps and 30 seeds. PointGoal is
`PointGoal2500` (docs/environments/point_goal.md says why). Where a row of `table1` has the settings
and seeds of a row of another study, their units are the same and are trained once.
"""

from dataclasses import replace

from canary.studies.data import PaperRow, Study, Variant


def _published(violation: tuple, jitter: tuple, safe: float, reward: tuple) -> PaperRow:
    """Numbers as the paper prints them: pairs of mean and standard error, the jitter in
    thousandths."""
    return PaperRow(
        violation=violation[0], violation_error=violation[1], jitter=jitter[0] / 1e3, jitter_error=jitter[1] / 1e3,
        safe=safe, reward=reward[0], reward_error=reward[1],
    )  # fmt: skip


# tab:safety
PUBLISHED = {
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
_SHORT = {"EcoAnt": "eco-ant", "PointGoal2500": "point-goal", "IcyLake": "icy-lake"}
_CPU = {  # seeds and steps of the `fast` rows
    "IcyLake": (tuple(range(4100, 4110)), 1_000_000),
    "PointGoal2500": (tuple(range(3600, 3604)), 2_000_000),
    "EcoAnt": (tuple(range(1500, 1503)), 10_000_000),
}
_AS_PUBLISHED = {  # which methods are also trained as published, on how many seeds, how long
    "IcyLake": (("canary", "cpo", "cvar-cpo"), 5, 1_000_000),
    "PointGoal2500": (("canary",), 2, 2_000_000),
    "EcoAnt": (("canary",), 2, 1_000_000),  # a tenth of the paper's: hours per seed on a CPU
}


def _rows(environment: str) -> list[Variant]:
    seeds, steps = _CPU[environment]
    methods, few, published_steps = _AS_PUBLISHED[environment]
    rows = []
    for algorithm, published in PUBLISHED[environment].items():
        name = f"{_SHORT[environment]}-{algorithm}"
        row = Variant(
            name=name, about="as it is here", algorithm=algorithm, paper=published,
            environment=environment, seeds=seeds, total_steps=steps,
        )  # fmt: skip
        rows.append(row)
        if algorithm in methods:
            name = f"{name}-published"
            rows.append(
                replace(
                    row, name=name, about="as published", preset="paper", seeds=seeds[:few],
                    total_steps=published_steps,
                )
            )  # fmt: skip
    return rows


TABLE1 = Study(
    title="The paper's table: five methods on three environments (epsilon 0.02)",
    view="table1",
    seeds=_CPU["IcyLake"][0],
    total_steps=1_000_000,
    variants=tuple(row for environment in PUBLISHED for row in _rows(environment)),
)

TRAINING_CURVES = replace(
    TABLE1,
    title="Training on three environments (epsilon 0.02)",
    view="training-curves",
    units_of="table1",
)

_CANARY_ROWS = tuple(row for row in TABLE1.variants if row.algorithm == "canary")

ANATOMY = replace(
    TABLE1,
    title="Anatomy of the conservatism (epsilon 0.02)",
    view="anatomy",
    units_of="table1",
    variants=_CANARY_ROWS,
)

GAUSSIAN_TAIL = replace(
    ANATOMY, title="Gaussian tails underestimate risk (epsilon 0.02)", view="gaussian-tail"
)

_PUBLISHED_CANARY = {row.environment: row for row in _CANARY_ROWS if row.preset == "paper"}

# The theorem's surrogates are in units of an episode. The authors' public code leaves their factor
# out, so a published row may be of surrogates in units of a step.
SURROGATE_UNITS = Study(
    title="Canary as published, by the units of its surrogates (epsilon 0.02)",
    seeds=_CPU["IcyLake"][0][:5],
    total_steps=1_000_000,
    variants=tuple(
        replace(_PUBLISHED_CANARY[environment], name=f"{_SHORT[environment]}-{name}", about=about,
                overrides=overrides)
        for environment in ("IcyLake", "PointGoal2500")
        for name, about, overrides in (
            ("episode", "of an episode, as in the paper's equations", ()),
            ("step", "of a step, without the factor", ("algo.surrogate_scale=step",)),
        )
    ),
)  # fmt: skip

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
EPSILON_SWEEP = Study(
    title="Canary over epsilon on IcyLake (limit 15)",
    view="epsilon-sweep",
    seeds=tuple(range(4600, 4605)),
    total_steps=500_000,
    variants=tuple(
        Variant(name=f"{family}-{epsilon}", about=about, is_named_by_preset=family == "shaped",
                overrides=("constraint.limit=15", f"constraint.epsilon={epsilon}", *overrides))
        for family, about, overrides in (
            ("unshaped", "the paper's bound, on the cost itself", ("algo.dead_zone=none",)),
            ("shaped", "the `fast` preset", ()),
        )
        for epsilon in EPSILONS
    ),
)  # fmt: skip


def _cppo(environment: str, gain: float, step: float, init: float | None = None) -> Variant:
    overrides = [f"algo.proportional_gain={gain:g}", f"algo.multiplier_step={step:g}"]
    name = f"{_SHORT[environment]}-gain-{gain:g}-step-{step:g}"
    if init is not None:
        overrides, name = [*overrides, f"algo.multiplier_init={init:g}"], f"{name}-init-{init:g}"
    small, steps = (5, 300_000) if environment == "IcyLake" else (2, 500_000)
    return Variant(
        name=name, about=f"CPPO on {environment}", algorithm="cppo", overrides=tuple(overrides),
        environment=environment, seeds=tuple(range(2400, 2400 + small)), total_steps=steps,
    )  # fmt: skip


CPPO_SEARCH = Study(
    title="CPPO's 12-point grids (epsilon 0.02)",
    seeds=tuple(range(2400, 2405)),
    total_steps=300_000,
    variants=(
        *(_cppo("IcyLake", gain, step) for gain in (0, 15, 60, 150) for step in (1e-3, 3e-2, 3e-1)),
        *(
            _cppo(environment, gain, step, init)
            for environment in ("PointGoal2500", "EcoAnt")
            for gain in (60, 100, 150) for step in (0.01, 0.03) for init in (1, 50)
        ),
    ),
)  # fmt: skip

RELATIVE_VARIANCE = Study(
    title="Relative variance of the constraints on IcyLake",
    view="relative-variance",
    seeds=(2500, 2501, 2502),
    total_steps=920_000,  # of one point: 230 batches
    variants=(),
)

PAPER_STUDIES: dict[str, Study] = {
    "table1": TABLE1,
    "training-curves": TRAINING_CURVES,
    "relative-variance": RELATIVE_VARIANCE,
    "surrogate-units": SURROGATE_UNITS,
    "epsilon-sweep": EPSILON_SWEEP,
    "anatomy": ANATOMY,
    "gaussian-tail": GAUSSIAN_TAIL,
    "cppo-search": CPPO_SEARCH,
}
