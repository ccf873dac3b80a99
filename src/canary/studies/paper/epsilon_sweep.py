"""The paper's sweep over epsilon (fig:eps_sweep): dynamics, calibration, and the time in which the
violation rate falls from 0.3 to 0.1."""

from pathlib import Path
from typing import Any

import numpy as np

from canary.studies.page import Numbers, Page, Paths, Row
from canary.studies.paper.training_curves import curve
from canary.studies.store import RATE_EPISODES
from canary.studies.table import (
    ABOUT_FINAL,
    FINAL_COLUMNS,
    final_cells,
    numbers,
    probability,
    shown,
    with_error,
)


def save(page: Page) -> Paths:
    data = {row.name: calibration(row) for row in page.shown}
    figure = "epsilon-sweep.png" if data else None
    if figure:
        _figure(page.shown, data, page.folder / figure)
    return page.table(
        "P is of the second half of training (± standard error over seeds). The collapse is the "
        f"median time\nin which the violation rate of the last {RATE_EPISODES} episodes fell from "
        "0.3 to 0.1, over the seeds that did.\nThe paper (500 seeds): P settles 2-4 times below ε, "
        f"and the collapse takes about 20,000 steps at every ε.\n{ABOUT_FINAL}",
        ("row", "ε", "P", "P, whole training", "ε / P", "J", "collapse, steps", *FINAL_COLUMNS,
         "seeds × steps", "code"),
        lambda row: [_cells(row, data[row.name])],
        list(data.values()),
        figure,
    )  # fmt: skip


def calibration(row: Row) -> Numbers:
    values = numbers(row)
    times = [time for time in row.each("collapse_steps") if time is not None]
    assert row.epsilon is not None
    return values | {
        "below_threshold": row.epsilon / values["violation"] if values["violation"] else None,
        "collapse_steps": float(np.median(times)) if times else None,
        "collapsed_seeds": len(times),
    }


def _cells(row: Row, values: Numbers) -> tuple[str, ...]:
    collapse = shown(values["collapse_steps"], ",.0f")
    return (
        row.name,
        f"{row.epsilon:g}",
        with_error(values["violation"], values["violation_error"]),
        probability(values["violation_whole"]),
        shown(values["below_threshold"], ".1f"),
        shown(values["reward"], ".3f"),
        f"{collapse} ({values['collapsed_seeds']} of {values['seeds']})",
        *final_cells(values),
        row.size,
        row.codes,
    )


def _figure(rows: list[Row], data: dict[str, Numbers], path: Path) -> None:
    """A panel of curves for each family of rows, and a panel of where they end."""
    import matplotlib.pyplot as plt

    from canary.reporting.figures import GREY, STYLE, save, show_steps

    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.name.rpartition("-")[0], []).append(row)
    with plt.rc_context(STYLE):
        count = 1 + len(families)
        figure, panels = plt.subplots(1, count, figsize=(3.9 * count, 3.4), layout="constrained")
        last = panels[-1]
        for axes, (family, members), marker in zip(panels, families.items(), "osD^", strict=False):
            for row, shade in zip(members, np.linspace(0, 0.9, len(members)), strict=True):
                _curve(axes, row, plt.get_cmap("viridis")(shade))
            title = f"{family}: P(cost > {members[0].limit:g})"
            show_steps(axes).set(title=title, xlabel="environment steps per seed")
            axes.legend(fontsize=8)
            known = [data[row.name] for row in members if data[row.name]["violation"] is not None]
            last.errorbar(
                [one["epsilon"] for one in known], [max(one["violation"], 1e-5) for one in known],
                yerr=[one["violation_error"] or 0.0 for one in known], marker=marker, label=family,
                linewidth=1,
            )  # fmt: skip
        ends = [min(one["epsilon"] for one in data.values()), max(one["epsilon"] for one in data.values())]  # fmt: skip
        last.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="P = ε")
        last.set(xscale="log", yscale="log", xlabel="ε", title="converged P (at least 1e-5)")
        last.legend(fontsize=8)
        save(figure, path)


def _curve(axes: Any, row: Row, colour: Any) -> None:
    line = curve(row)
    mean, spread = (line[name].to_numpy() for name in ("violation", "violation_deviation"))
    axes.plot(line["steps"], mean, color=colour, label=f"ε = {row.epsilon:g}")
    low = np.maximum(mean - spread, 0)
    axes.fill_between(line["steps"], low, mean + spread, color=colour, alpha=0.12)
