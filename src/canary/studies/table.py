"""The usual table of a study, and the numbers and cells that other tables share with it.

The columns are those of the paper's table (tab:safety), over the second half of training: violation
probability P, its jitter, the share of safe seeds, the return J. Beside them: P over the whole of
training, and the final policies. Rows on the same problem are compared with the first of them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from canary.numerics.statistics import clopper_pearson_interval, clopper_pearson_upper
from canary.reporting import statistics
from canary.studies.page import Line, Numbers, Page, Paths, Row

LOWEST = 3e-4  # smaller probabilities are drawn here


def numbers(row: Row, first: Row | None = None) -> Numbers:
    """All numbers of a row; `first` is the row on the same problem that it is compared with."""
    about, returns = row.about, row.each("return")
    paper = about["paper"] or {}
    middle = (
        statistics.bootstrap(statistics.interquartile_mean, returns)
        if returns
        else (None, None, None)
    )
    seconds = sum(one.get("train_seconds") or 0.0 for one in row.seeds.values())
    found: Numbers = {
        "row": row.name,
        "about": about["about"],
        "environment": row.environment,
        "algorithm": row.algorithm,
        "preset": about["preset"],
        "overrides": " ".join(about["overrides"]),
        "limit": row.limit,
        "epsilon": row.epsilon,
        "seeds": len(row.seeds),
        "seed_ids": " ".join(map(str, row.seeds)),
        "steps": row.steps,
        **_mean("violation", row.each("violation")),
        **_mean("violation_whole", row.each("violation_whole")),
        **_mean("jitter", row.each("jitter")),
        "safe": statistics.safe_fraction(row.each("constraint"), row.constraint.allowed),
        **_mean("reward", returns),
        "lowest_reward": min(returns, default=None),
        **_named("iqm_reward", ("", "_lower", "_upper"), middle),
    }
    margin = statistics.margin_per_jitter(row.epsilon, found["violation"], found["jitter"])
    return found | {
        "margin_per_jitter": margin,
        **_against(row, first),
        **final_numbers(row),
        "steps_per_second": row.steps * len(row.seeds) / seconds if seconds else None,
        **{f"paper_{name}": paper.get(name) for name in ("violation", "jitter", "safe", "reward")},
        "code": row.codes,
    }


def _mean(name: str, values: list[float]) -> Numbers:
    return {
        name: statistics.mean_over_seeds(values),
        f"{name}_error": statistics.standard_error(values),
    }


def _named(name: str, ends: tuple[str, ...], values: Iterable[float | None]) -> Numbers:
    return {f"{name}{end}": value for end, value in zip(ends, values, strict=True)}


def _against(row: Row, first: Row | None) -> Numbers:
    """Differences to the first row on the same problem, seed by seed where they share seeds, and
    the probability that a seed of this row earns more."""
    others = {} if first is None or first is row else first.seeds
    pairs = [(one, others[seed]) for seed, one in row.seeds.items() if seed in others]
    differences: Numbers = {}
    for name, key in (("reward", "return"), ("violation", "violation")):
        found = statistics.paired_difference(
            [one[key] for one, _ in pairs], [one[key] for _, one in pairs]
        )
        differences |= _named(f"{name}_difference", ("", "_error"), found or (None, None))
    ours = row.each("return")
    theirs = [one["return"] for one in others.values() if one["return"] is not None]
    better = (
        statistics.improvement_probability(ours, theirs) if ours and theirs else (None, None, None)
    )
    return differences | _named("improvement", ("", "_lower", "_upper"), better)


def final_numbers(row: Row) -> Numbers:
    """The final policies of a row; None where nothing is known.

    They are exact in a finite environment. Elsewhere they played fresh episodes, so probabilities
    have Clopper-Pearson 95% intervals: of all episodes together, and for the largest jointly over
    the seeds (each at 1 - 0.05 / seeds).
    """
    violation, epsilon = row.final("violation"), row.epsilon
    counts = list(zip(row.final("violations"), row.final("episodes"), strict=True))
    whole, largest, sure = (None, None), (None, None), None
    if counts:
        violations, episodes = (sum(column) for column in zip(*counts, strict=True))
        whole = map(float, clopper_pearson_interval(violations, episodes))
        each = [clopper_pearson_interval(k, n, 1 - 0.05 / len(counts)) for k, n in counts]
        largest = (float(max(ends)) for ends in zip(*each, strict=True))
        bounds = [float(clopper_pearson_upper(k, n, 0.95)) for k, n in counts]
        sure = None if epsilon is None else statistics.safe_fraction(bounds, epsilon)
    return {
        "final_is_exact": bool(violation) and not counts,
        "final_violation": statistics.mean_over_seeds(violation),
        **_named("final_violation", ("_lower", "_upper"), whole),
        "final_largest_violation": max(violation, default=None),
        **_named("final_largest", ("_lower", "_upper"), largest),
        "final_safe": None if epsilon is None else statistics.safe_fraction(violation, epsilon),
        "final_sure": sure,
        "final_reward": statistics.mean_over_seeds(row.final("return")),
    }


def table_numbers(rows: Sequence[Row]) -> dict[str, Numbers]:
    """The numbers of every row by its name."""
    first: dict[str, Row] = {}
    return {
        row.name: numbers(
            row, first.setdefault(f"{row.config['environment']}{row.config['constraint']}", row)
        )
        for row in rows
    }


# Cells; - where a number is not known


def middle(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def probability(value: float | None, beside: float | None = None) -> str:
    """Four decimals, or a power of ten where it, or the number it stands beside, is rarer."""
    if value is None or value == 0:
        return "-" if value is None else "0"
    if abs(beside or value) >= 5e-4:
        return f"{value:.4f}"
    return f"{value:.1e}".replace("e-0", "e-")


def reward(value: float | None, beside: float | None = None) -> str:
    """Three decimals, or one if it, or the number it stands beside, is 10 or more."""
    return shown(value, ".1f" if abs(beside or value or 0) >= 10 else ".3f")


def with_error(values: Numbers, name: str, cell: Any = probability) -> str:
    value, error = values[name], values[f"{name}_error"]
    return "-" if value is None else f"{cell(value)} ± {cell(error, value)}"


def with_interval(values: Numbers, name: str, ends: str, cell: Any = probability) -> str:
    value, lower, upper = values[name], values[f"{ends}_lower"], values[f"{ends}_upper"]
    interval = "" if lower is None else f" [{cell(lower, value)}, {cell(upper, value)}]"
    return f"{cell(value)}{interval}"


def improvement_cell(values: Numbers) -> str:
    def cell(value: float | None, _: float | None = None) -> str:
        return shown(value, ".2f")

    return with_interval(values, "improvement", "improvement", cell)


def margin_cell(values: Numbers) -> str:
    """(epsilon - P) / jitter."""
    return "- (jitter 0)" if values["jitter"] == 0 else shown(values["margin_per_jitter"], ".1f")


ABOUT_FINAL = (
    "Final columns describe the final policies: exact, by dynamic programming, in a finite "
    "environment;\nelsewhere on fresh episodes with Clopper-Pearson 95% intervals, for the largest "
    "jointly over seeds;\n`sure` is the share of seeds whose own 95% upper bound is at most ε."
)
ABOUT_IMPROVEMENT = (
    "P(J above the first's) is the probability that a seed of the row earns more than a seed of the "
    "first row\non the same problem, with a bootstrap interval."
)


def final_cells(values: Numbers) -> Line:
    safe, sure = shown(values["final_safe"], ".0%"), values["final_sure"]
    return {
        "final P [95%]": with_interval(values, "final_violation", "final_violation"),
        "largest final P [95%]": with_interval(values, "final_largest_violation", "final_largest"),
        "final safe": safe if sure is None else f"{safe} ({sure:.0%} sure)",
        "final J": reward(values["final_reward"]),
    }


def save(page: Page) -> Paths:
    """Write the usual table and its figure."""
    found = table_numbers(page.shown)
    return page.write(
        "P, jitter, safe and J are of the second half of training (± standard error over seeds).\n"
        "Differences are to the first row on the same problem, seed by seed (± 95% interval).\n"
        f"{ABOUT_IMPROVEMENT}\n{ABOUT_FINAL}\n"
        "`code` is the fingerprint of the code that trained the row (docs/reproduction.md).",
        page.lines(lambda row: cells(row, found[row.name])),
        list(found.values()),
        _figure(page.shown, page.study["title"]) if page.shown else None,
    )


def cells(row: Row, values: Numbers) -> Line:
    def difference(name: str, cell: Any) -> str:
        text = with_error(values, f"{name}_difference", cell)
        return f"+{text}" if (values[f"{name}_difference"] or -1) >= 0 else text

    return {
        "P": with_error(values, "violation"),
        "P, whole training": with_error(values, "violation_whole"),
        "jitter": with_error(values, "jitter"),
        "safe": shown(values["safe"], ".0%"),
        "J": with_error(values, "reward", reward),
        "lowest J": reward(values["lowest_reward"]),
        "IQM J [95%]": with_interval(values, "iqm_reward", "iqm_reward", reward),
        "(ε−P)/jitter": margin_cell(values),
        "J against the first": difference("reward", reward),
        "P(J above the first's) [95%]": improvement_cell(values),
        "P against the first": difference("violation", probability),
        **final_cells(values),
        **row.size,
        "": row.about["about"],
    }


def _figure(rows: list[Row], title: str) -> Any:
    """P against J: a point per seed, a panel per environment."""
    from canary.reporting.figures import RED, canvas, colours, legend_beside, show_probabilities

    environments = list(dict.fromkeys(row.environment for row in rows))
    is_one = len(environments) == 1
    height = 4.2 if is_one else 3.2 * len(environments)
    with canvas(len(environments), 1, (7.5, height)) as (figure, panels):
        for axes, environment in zip(panels[:, 0], environments, strict=True):
            here = [row for row in rows if row.environment == environment]
            for index, (row, colour) in enumerate(zip(here, colours(len(here)), strict=True)):
                seeds = [(one["violation"], one["return"]) for one in row.seeds.values()]
                known = [(max(p, LOWEST), j) for p, j in seeds if None not in (p, j)]
                x, y = [p for p, _ in known], [j for _, j in known]
                style = {"marker": "osD^vP*XphH"[index % 11], "alpha": 0.8, "linewidths": 0}
                axes.scatter(x, y, s=26, color=colour, label=row.name, **style)
            for epsilon in sorted({row.epsilon for row in here if row.epsilon is not None}):
                axes.axvline(epsilon, color=RED, linewidth=1, linestyle="--")
            label = f"P, second half of training (at least {LOWEST:g}); dashed: ε"
            axes.set(xscale="log", xlabel=label, ylabel="return")
            axes.set_title(title if is_one else environment)
            show_probabilities(axes.xaxis)
            legend_beside(axes, 1 + len(here) // 20)
        if not is_one:
            figure.suptitle(title)
    return figure
