"""The usual table of a study, and the numbers and cells that other tables share with it.

The columns are those of the paper's table (tab:safety), over the second half of training: violation
probability P, its jitter, the share of safe seeds, the return J. Beside them: P over the whole of
training, and the final policies. Rows on the same problem are compared with the first of them.
"""

from collections.abc import Sequence
from pathlib import Path

from canary.numerics.binomial import clopper_pearson_interval, clopper_pearson_upper
from canary.reporting.statistics import (
    bootstrap,
    improvement_probability,
    interquartile_mean,
    margin_per_jitter,
    mean_over_seeds,
    paired_difference,
    safe_fraction,
    standard_error,
)
from canary.studies.page import Numbers, Page, Paths, Row

LOWEST = 3e-4  # smaller probabilities are drawn here


def final_numbers(row: Row) -> Numbers:
    """The final policies of a row; None where nothing is known.

    They are exact in a finite environment. Elsewhere they played fresh episodes, so probabilities
    have Clopper-Pearson 95% intervals: of all episodes together, and for the largest jointly over
    the seeds (each at 1 - 0.05 / seeds).
    """
    violation, epsilon = row.final("violation"), row.epsilon
    counts = list(zip(row.final("violations"), row.final("episodes"), strict=True))
    whole = largest = (None, None)
    sure = None
    if counts:
        violations, episodes = (sum(column) for column in zip(*counts, strict=True))
        whole = tuple(map(float, clopper_pearson_interval(violations, episodes)))
        each = [clopper_pearson_interval(k, n, 1 - 0.05 / len(counts)) for k, n in counts]
        largest = max(float(low) for low, _ in each), max(float(high) for _, high in each)
        bounds = [float(clopper_pearson_upper(k, n, 0.95)) for k, n in counts]
        sure = None if epsilon is None else safe_fraction(bounds, epsilon)
    return {
        "final_is_exact": bool(violation) and not counts,
        "final_violation": mean_over_seeds(violation),
        "final_violation_lower": whole[0],
        "final_violation_upper": whole[1],
        "final_largest_violation": max(violation, default=None),
        "final_largest_lower": largest[0],
        "final_largest_upper": largest[1],
        "final_safe": None if epsilon is None else safe_fraction(violation, epsilon),
        "final_sure": sure,
        "final_reward": mean_over_seeds(row.final("return")),
    }


def numbers(row: Row, first: Row | None = None) -> Numbers:
    """All numbers of a row; `first` is the row on the same problem that it is compared with."""
    violation, jitter, paper = row.each("violation"), row.each("jitter"), row.about["paper"] or {}
    returns = [value for value in row.each("return") if value is not None]
    middle = bootstrap(interquartile_mean, [returns]) if returns else (None, None, None)
    seconds = sum(one.get("train_seconds") or 0.0 for one in row.seeds.values())
    mean, wander = mean_over_seeds(violation), mean_over_seeds(jitter)
    return {
        "row": row.name,
        "about": row.about["about"],
        "environment": row.environment,
        "algorithm": row.algorithm,
        "preset": row.preset,
        "overrides": " ".join(row.about["overrides"]),
        "limit": row.limit,
        "epsilon": row.epsilon,
        "seeds": len(row.seeds),
        "seed_ids": " ".join(map(str, row.seeds)),
        "steps": row.steps,
        "violation": mean,
        "violation_error": standard_error(violation),
        "violation_whole": mean_over_seeds(row.each("violation_whole")),
        "violation_whole_error": standard_error(row.each("violation_whole")),
        "jitter": wander,
        "jitter_error": standard_error(jitter),
        "safe": safe_fraction(row.each("constraint"), row.constraint.allowed),
        "reward": mean_over_seeds(returns),
        "reward_error": standard_error(returns),
        "lowest_reward": min(returns, default=None),
        "iqm_reward": middle[0],
        "iqm_reward_lower": middle[1],
        "iqm_reward_upper": middle[2],
        "margin_per_jitter": margin_per_jitter(row.epsilon, mean, wander),
        **_against(row, first),
        **final_numbers(row),
        "steps_per_second": row.steps * len(row.seeds) / seconds if seconds else None,
        **{f"paper_{name}": paper.get(name) for name in ("violation", "jitter", "safe", "reward")},
        "code": row.codes,
    }


def _against(row: Row, first: Row | None) -> Numbers:
    """Differences to the first row on the same problem, seed by seed where they share seeds, and
    the probability that a seed of this row earns more (Agarwal et al., 2021)."""
    pairs = (("reward", "return"), ("violation", "violation"))
    columns = [f"{name}_difference{end}" for name, _ in pairs for end in ("", "_error")]
    columns += ["improvement", "improvement_lower", "improvement_upper"]
    if first is None or first is row:
        return dict.fromkeys(columns)
    values: list[float | None] = []
    shared = [seed for seed in row.seeds if seed in first.seeds]
    for _, key in pairs:
        ours, theirs = ([one.seeds[seed][key] for seed in shared] for one in (row, first))
        values += paired_difference(ours, theirs) or (None, None)
    ours, theirs = ([j for j in one.each("return") if j is not None] for one in (row, first))
    values += improvement_probability([ours], [theirs]) if ours and theirs else (None, None, None)
    return dict(zip(columns, values, strict=True))


def table_numbers(rows: Sequence[Row]) -> list[Numbers]:
    first: dict[str, Row] = {}
    return [
        numbers(
            row, first.setdefault(f"{row.config['environment']}{row.config['constraint']}", row)
        )
        for row in rows
    ]


# Cells


def shown(value: float | None, form: str) -> str:
    """A number as a cell; - where it is not known."""
    return "-" if value is None else format(value, form)


def probability(value: float | None, beside: float | None = None) -> str:
    """Four decimals, or a power of ten where it, or the number it stands beside, is rarer."""
    if value is None or value == 0:
        return "-" if value is None else "0"
    if abs(beside or value) >= 5e-4:
        return f"{value:.4f}"
    return f"{value:.1e}".replace("e-0", "e-")


def with_error(value: float | None, error: float | None) -> str:
    """A probability with its standard error."""
    return "-" if value is None else f"{probability(value)} ± {probability(error, value)}"


def with_interval(values: Numbers, name: str, ends: str, form: str | None = None) -> str:
    """A number with its interval where it has one; without a form it is a probability."""

    def text(value: float | None) -> str:
        return probability(value) if form is None else shown(value, form)

    lower, upper = values[f"{ends}_lower"], values[f"{ends}_upper"]
    return text(values[name]) + ("" if lower is None else f" [{text(lower)}, {text(upper)}]")


def margin_cell(values: Numbers) -> str:
    """(epsilon - P) / jitter."""
    return "- (jitter 0)" if values["jitter"] == 0 else shown(values["margin_per_jitter"], ".1f")


FINAL_COLUMNS = ("final P [95%]", "largest final P [95%]", "final safe", "final J")
ABOUT_FINAL = (
    "Final columns are of the final policies: exact, by dynamic programming, in a finite "
    "environment;\nelsewhere on fresh episodes with Clopper-Pearson 95% intervals, for the largest "
    "jointly over seeds;\n`sure` is the share of seeds whose own 95% upper bound is at most ε."
)
ABOUT_IMPROVEMENT = (
    "P(J above the first's) is the probability that a seed of the row earns more than a seed of the "
    "first row\non the same problem, with a bootstrap interval."
)


def final_cells(values: Numbers, form: str = ".3f") -> tuple[str, str, str, str]:
    """The cells of FINAL_COLUMNS."""
    safe, sure = shown(values["final_safe"], ".0%"), values["final_sure"]
    return (
        with_interval(values, "final_violation", "final_violation"),
        with_interval(values, "final_largest_violation", "final_largest"),
        safe if sure is None else f"{safe} ({sure:.0%} sure)",
        shown(values["final_reward"], form),
    )


# The usual table

COLUMNS = (
    "row", "P", "P, whole training", "jitter", "safe", "J", "lowest J", "IQM J [95%]", "(ε−P)/jitter",
    "J against the first", "P(J above the first's) [95%]", "P against the first", *FINAL_COLUMNS,
    "paper: P, jitter, safe, J", "seeds × steps", "code", "",
)  # fmt: skip


def save(page: Page) -> Paths:
    """Write the usual table and study.png."""
    data = table_numbers(page.shown)
    by_name = {values["row"]: values for values in data}
    figure = "study.png" if page.shown else None
    if figure:
        _figure(page.shown, page.study["title"], page.folder / figure)
    return page.table(
        "P, jitter, safe and J are of the second half of training (± standard error over seeds).\n"
        "Differences are to the first row on the same problem, seed by seed (± 95% interval).\n"
        f"{ABOUT_IMPROVEMENT}\n{ABOUT_FINAL}\n"
        "`code` is the fingerprint of the code that trained the row (docs/reproduction.md).",
        COLUMNS,
        lambda row: [_cells(row, by_name[row.name])],
        data,
        figure,
    )


def _cells(row: Row, values: Numbers) -> tuple[str, ...]:
    def both(name: str, error: str, form: str) -> str:
        if values[name] is None:
            return "-"
        return f"{shown(values[name], form)} ± {shown(values[error], form.lstrip('+'))}"

    paper = ("violation", ".3f"), ("jitter", ".4f"), ("safe", ".0%"), ("reward", ".2f")
    return (
        row.name,
        with_error(values["violation"], values["violation_error"]),
        with_error(values["violation_whole"], values["violation_whole_error"]),
        with_error(values["jitter"], values["jitter_error"]),
        shown(values["safe"], ".0%"),
        both("reward", "reward_error", ".3f"),
        shown(values["lowest_reward"], ".3f"),
        with_interval(values, "iqm_reward", "iqm_reward", ".3f"),
        margin_cell(values),
        both("reward_difference", "reward_difference_error", "+.3f"),
        with_interval(values, "improvement", "improvement", ".2f"),
        both("violation_difference", "violation_difference_error", "+.4f"),
        *final_cells(values),
        ", ".join(shown(values[f"paper_{name}"], form) for name, form in paper)
        if row.about["paper"]
        else "-",
        row.size,
        row.codes,
        row.about["about"],
    )


def _figure(rows: list[Row], title: str, path: Path) -> None:
    """P against J: a point per seed, a panel per environment."""
    import matplotlib.pyplot as plt

    from canary.reporting.figures import GREY, RED, STYLE, save, show_probabilities

    environments = list(dict.fromkeys(row.environment for row in rows))
    height = 4.2 if len(environments) == 1 else 3.2 * len(environments)
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            len(environments), figsize=(7.5, height), layout="constrained", squeeze=False
        )
        for axes, environment in zip(panels[:, 0], environments, strict=True):
            here = [row for row in rows if row.environment == environment]
            colours = plt.get_cmap("tab20" if len(here) > 10 else "tab10")
            for index, row in enumerate(here):
                seeds = zip(row.each("violation"), row.each("return"), strict=True)
                points = [(max(p, LOWEST), j) for p, j in seeds if p is not None and j is not None]
                axes.scatter(
                    [p for p, _ in points], [j for _, j in points], s=26, alpha=0.8, linewidths=0,
                    color=colours(index % colours.N), marker="osD^vP*XphH"[index % 11], label=row.name,
                )  # fmt: skip
            for epsilon in sorted({row.epsilon for row in here if row.epsilon is not None}):
                axes.axvline(epsilon, color=RED, linewidth=1, linestyle="--")
            axes.set(
                xscale="log", ylabel="return",
                xlabel=f"P, second half of training (at least {LOWEST:g}); dashed: ε",
                title=environment if len(environments) > 1 else title,
            )  # fmt: skip
            show_probabilities(axes.xaxis)
            axes.legend(
                loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, labelcolor=GREY,
                ncols=1 + len(here) // 20,
            )  # fmt: skip
        if len(environments) > 1:
            figure.suptitle(title)
        save(figure, path)
