"""The table and the figure of a study.

Columns as in the paper's table (tab:safety), over the second half of training: violation
probability P, its jitter, the share of seeds with P <= epsilon, the return J, (epsilon - P) /
jitter; then the same of the final policies (`studies.cells`). Rows on the same problem are compared
with the first of them: seed by seed where they share seeds, and by the probability that one of
their seeds earns more than one of the first row's (Agarwal et al., 2021).
"""

from pathlib import Path
from typing import Any

from canary.reporting.statistics import (
    bootstrap,
    improvement_probability,
    interquartile_mean,
    margin_per_jitter,
    paired_difference,
)
from canary.studies.cells import (
    ABOUT_FINAL,
    ABOUT_IMPROVEMENT,
    FINAL_COLUMNS,
    final_cells,
    final_numbers,
    margin_cell,
    with_error,
    with_interval,
)
from canary.studies.page import paths_of, shown, write_data, write_page
from canary.studies.rows import Row

LOWEST = 3e-4  # where the figure draws what is below
COLUMNS = (
    "variant", "P", "jitter", "safe", "J", "lowest J", "IQM J [95%]", "(ε−P)/jitter", "J against the first",
    "P(J above the first's) [95%]", "P against the first", *FINAL_COLUMNS, "paper: P, jitter, safe, J", "seeds × steps",
    "code", "",
)  # fmt: skip


def save(
    results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]
) -> dict[str, Path]:
    """Write table.md, table.csv and study.png; returns their paths by label."""
    data, paths = table_rows(rows), paths_of(results, "study.png")
    write_page(
        results,
        study,
        "P, jitter, safe and J are of the second half of training (± standard error over\n"
        "seeds), differences to the first row of the same problem are seed by seed (± 95% "
        "interval).\n"
        f"{ABOUT_IMPROVEMENT}\n{ABOUT_FINAL}\n"
        "`code` is the fingerprint of the code that made the row (docs/reproduction.md), - if it "
        "was made before there were any.",
        COLUMNS,
        [_cells(row) for row in data],
        problems,
    )
    write_data(results, data)
    _figure(rows, study, paths["figure"])
    return paths


def table_rows(rows: list[Row]) -> list[dict[str, Any]]:
    """Numbers as numbers, one dictionary per row."""
    first: dict[tuple[Any, ...], Row] = {}
    return [numbers(row) | _against(row, first.setdefault(row.problem, row)) for row in rows]


def numbers(row: Row) -> dict[str, Any]:
    """What one row says by itself."""
    summary, about, paper = row.summary, row.about, row.about["paper"] or {}
    returns = [value for value in summary["return_per_seed"] if value is not None]
    middle = bootstrap(interquartile_mean, [returns]) if returns else (None, None, None)
    return {
        "variant": row.name,
        "about": about["about"],
        "environment": summary["env"],
        "algorithm": summary["algorithm"],
        "preset": summary["preset"],
        "overrides": " ".join(about["overrides"]),
        "limit": summary["limit"],
        "epsilon": summary["epsilon"],
        "seeds": summary["seeds"],
        "seed_ids": " ".join(map(str, summary["seed_ids"])),
        "steps": summary["total_steps"],
        "violation": summary["violation_probability"],
        "violation_error": summary["violation_standard_error"],
        "jitter": summary["violation_jitter"],
        "jitter_error": summary["jitter_standard_error"],
        "safe": summary["safe_fraction"],
        "reward": summary["return_mean"],
        "reward_error": summary["return_standard_error"],
        "lowest_reward": min(returns, default=None),
        "iqm_reward": middle[0],
        "iqm_reward_lower": middle[1],
        "iqm_reward_upper": middle[2],
        "margin_per_jitter": margin_per_jitter(
            summary["epsilon"], summary["violation_probability"], summary["violation_jitter"]
        ),
        "largest_violation": max(
            (value for value in summary["violation_per_seed"] if value is not None), default=None
        ),
        **final_numbers(row),
        "steps_per_second": summary["steps_per_second"],
        **{f"paper_{name}": paper.get(name) for name in ("violation", "jitter", "safe", "reward")},
        "code": " ".join(row.codes),
    }


def _against(row: Row, first: Row) -> dict[str, float | None]:
    """How a row differs from the first on the same problem, on the seeds of both, with 95%
    intervals."""
    result: dict[str, float | None] = {}
    for name, key in (("reward", "return_per_seed"), ("violation", "violation_per_seed")):
        known = dict(zip(first.summary["seed_ids"], first.summary[key], strict=True))
        pairs = [
            (value, known[seed])
            for seed, value in zip(row.summary["seed_ids"], row.summary[key], strict=True)
            if seed in known
        ]
        ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
        pair = paired_difference(ours, theirs) if row is not first else None
        result[f"{name}_difference"], result[f"{name}_difference_error"] = pair or (None, None)
    ours, theirs = (
        [value for value in each.summary["return_per_seed"] if value is not None]
        for each in (row, first)
    )
    better = (
        improvement_probability([ours], [theirs]) if ours and theirs and row is not first else None
    )
    names = ("improvement", "improvement_lower", "improvement_upper")
    return result | dict(zip(names, better or (None, None, None), strict=True))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def show(name: str, form: str) -> str:
        return shown(row[name], form)

    def both(name: str, error: str, form: str) -> str:
        return "-" if row[name] is None else f"{show(name, form)} ± {show(error, form.lstrip('+'))}"

    paper = ("violation", ".3f"), ("jitter", ".4f"), ("safe", ".0%"), ("reward", ".2f")
    return (
        row["variant"],
        with_error(row["violation"], row["violation_error"]),
        with_error(row["jitter"], row["jitter_error"]),
        show("safe", ".0%"),
        both("reward", "reward_error", ".3f"),
        show("lowest_reward", ".3f"),
        with_interval(row, "iqm_reward", "iqm_reward", ".3f"),
        margin_cell(row),
        both("reward_difference", "reward_difference_error", "+.3f"),
        with_interval(row, "improvement", "improvement", ".2f"),
        both("violation_difference", "violation_difference_error", "+.4f"),
        *final_cells(row),
        ", ".join(show(f"paper_{name}", form) for name, form in paper)
        if row["paper_violation"] is not None
        else "-",
        f"{row['seeds']} × {row['steps']:,}",
        row["code"],
        row["about"],
    )


def _points(row: Row) -> list[tuple[float, float]]:
    """P and J of the seeds that have both."""
    seeds = zip(row.summary["violation_per_seed"], row.summary["return_per_seed"], strict=True)
    return [(p, j) for p, j in seeds if p is not None and j is not None]


def _figure(rows: list[Row], study: dict[str, Any], path: Path) -> None:
    """Every seed of every variant as a point: violation probability against return; a panel per
    environment, for returns of two environments have nothing in common."""
    import matplotlib.pyplot as plt

    from canary.reporting.figures import STYLE, save

    environments = list(dict.fromkeys(row.summary["env"] for row in rows))
    height = 4.2 if len(environments) == 1 else 3.2 * len(environments)
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            len(environments), figsize=(7.5, height), layout="constrained", squeeze=False
        )
        for axes, environment in zip(panels[:, 0], environments, strict=True):
            _panel(axes, [row for row in rows if row.summary["env"] == environment])
            if len(environments) > 1:
                axes.set_title(environment)
        if len(environments) > 1:
            figure.suptitle(study["title"])
        else:
            panels[0, 0].set_title(study["title"])
        save(figure, path)


def _panel(axes: Any, rows: list[Row]) -> None:
    import matplotlib.pyplot as plt

    from canary.reporting.figures import GREY, RED, show_probabilities

    colours = plt.get_cmap("tab20" if len(rows) > 10 else "tab10")
    markers = "osD^vP*XphH"
    points = [_points(row) for row in rows]
    for index, (row, seeds) in enumerate(zip(rows, points, strict=True)):
        axes.scatter(
            [max(p, LOWEST) for p, _ in seeds], [j for _, j in seeds], s=26, alpha=0.8, linewidths=0,
            color=colours(index % colours.N), marker=markers[index % len(markers)], label=row.name,
        )  # fmt: skip
    for epsilon in sorted({row.summary["epsilon"] for row in rows} - {None}):
        axes.axvline(epsilon, color=RED, linewidth=1, linestyle="--")
        axes.annotate(
            " epsilon "
            f"{epsilon:g}", (epsilon, 0.02), xycoords=("data", "axes fraction"), color=RED, fontsize=8,
            rotation=90, ha="right",  # several thresholds may stand close together
        )  # fmt: skip
    is_low = any(p < LOWEST for seeds in points for p, _ in seeds)
    below = f" ({LOWEST:g} and below at {LOWEST:g})" if is_low else ""
    axes.set(xscale="log", xlabel=f"violation probability, second half of training{below}")
    show_probabilities(axes.xaxis)
    axes.set_ylabel("return")
    axes.legend(
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        fontsize=8,
        labelcolor=GREY,
        ncols=1 + len(rows) // 20,
    )
