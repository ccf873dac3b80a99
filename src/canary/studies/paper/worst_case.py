"""The looseness of the paper's worst-case bounds (th:worst-case-violation, cor:recovery): the
bounds and the true effect of every update.

Canary trains with the paper's equations on IcyLake, cost discount 0.99. Its policy sees only the
tile, so the moments of the cost and the theorem's alpha are exact (`canary.exact.worst_case`).
Costs are in units of the limit.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from canary.constraints import Tier, one_cost
from canary.reporting.figures import BLUE, GREY, RED, canvas
from canary.studies.store import StoredStudy
from canary.studies.table import View, verdict
from canary.terminal.formatting import Line

SEEDS = (4700,)
UPDATES = 300
PARTS = ()  # all of it is computed together
DISCOUNT = 0.99
OVERRIDES = (
    f"algo.cost_discount={DISCOUNT}",
    "algo.observe_spent=false",
    "algo.hidden=64,64",
    f"training.total_steps={1000 * UPDATES}",
)


def missing(
    known: list[dict[str, Any]], seeds: tuple[int, ...], only: tuple[str, ...]
) -> list[tuple[str, Callable[[], list[dict[str, Any]]]]]:
    """The missing seeds, and functions that compute their updates."""
    have = {one["seed"] for one in known}
    return [(f"seed {seed}", partial(updates_of, seed)) for seed in seeds if seed not in have]


def updates_of(seed: int) -> list[dict[str, Any]]:
    """Bounds and true effect of every accepted update of one seed."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from canary.config.config import make_config
    from canary.exact import from_environment
    from canary.exact.worst_case import error_factor, exact_update, largest_bound
    from canary.numerics.risk import cantelli_value
    from canary.runs.seeds import make_terms, make_trainer
    from canary.training import init_training, train_iteration

    config = make_config("IcyLake", preset="paper", overrides=OVERRIDES)
    lake, trainer = from_environment(config.environment), make_trainer(config)
    constraint = one_cost(config.constraint, "A study")
    limit, epsilon = constraint.limit, constraint.share
    region = {"radius": config.algorithm.trust_region.target_kl, "discount": DISCOUNT}
    factor = error_factor(**region)

    def chances(state: Any) -> np.ndarray:
        logits = state.learner.policy(jnp.eye(lake.states)).logits
        return np.asarray(jax.nn.softmax(logits.astype(float)), float)

    step = jax.jit(lambda state: train_iteration(trainer, state))
    state = init_training(trainer, make_terms(config), seed)
    found = []
    for index in range(UPDATES):
        before = chances(state)
        state, (metrics, _) = step(state)
        if not metrics["accepted"]:
            continue
        update = exact_update(lake, before, chances(state), DISCOUNT)
        tier, alpha = Tier(int(metrics["tier"])), update.alpha / limit
        # The bounds count from here
        start = update.old_mean / limit if tier is Tier.MEAN_RESTORATION else 1.0
        mean, deviation = update.mean / limit, update.deviation / limit
        numbers = {
            "alpha": alpha,
            "batch_alpha": metrics["largest_advantage"],
            "error": abs(update.mean - update.surrogate_mean) / limit,
            "error_bound": factor * alpha,
            "mean": mean,
            "mean_bound": start + factor * alpha,
            "deviation": deviation,
            "deviation_needed": math.sqrt(1 / epsilon - 1) * factor * alpha,
            "bound": cantelli_value(mean, deviation**2, 1.0, epsilon),
            "bound_bound": largest_bound(update, limit, epsilon, **region) / limit**2,
        }
        rounded = {name: float(f"{float(value):.5g}") for name, value in numbers.items()}
        found.append({"seed": seed, "update": index, "tier": tier.label} | rounded)
    return found


ABOUT = (
    "Medians over the accepted updates of each tier, in units of the limit. All numbers are "
    "exact except the\nbatch's α, max |ratio · A|, which training logs. |μ − L_μ| ≤ Kα is the "
    "error of the surrogate, on which all\nbounds rest. B has a bound in tier a (nominal), μ "
    "in every tier. The corollary excludes provable violation\nwhere σ ≥ √β K α."
)


def view(study: StoredStudy) -> View:
    data = pl.DataFrame(study.points, infer_schema_length=None)
    tiers = data.partition_by("tier", maintain_order=True)
    return View(f"{ABOUT}\n{_claim(data)}", [_cells(rows) for rows in tiers], _figure(data))


def _claim(data: pl.DataFrame) -> str:
    kept = data.filter(
        (pl.col("error") <= pl.col("error_bound"))
        & (pl.col("mean") <= pl.col("mean_bound"))
        & ((pl.col("tier") != Tier.NOMINAL.label) | (pl.col("bound") <= pl.col("bound_bound")))
    )
    here = f"in {len(kept)} of {len(data)} updates, the median bound {_looseness(data)} times the error"
    return verdict("every update stays within the worst-case bounds", here, len(kept) == len(data))


def _cells(rows: pl.DataFrame) -> Line:
    tier = rows["tier"][0]
    is_nominal, has_corollary = tier == Tier.NOMINAL.label, tier != Tier.MEAN_RESTORATION.label
    excluded = (rows["deviation"] >= rows["deviation_needed"]).sum()

    def middle(name: str) -> str:
        return f"{rows[name].median():.3g}"

    return {
        "tier": tier,
        "updates": str(len(rows)),
        "α": middle("alpha"),
        "α of the batch": middle("batch_alpha"),
        "error of L_μ": middle("error"),
        "its bound Kα": middle("error_bound"),
        "bound / error": _looseness(rows),
        "μ": middle("mean"),
        "bound on μ": middle("mean_bound"),
        "B": middle("bound"),
        "bound on B": middle("bound_bound") if is_nominal else None,
        "σ": middle("deviation"),
        "σ needed": middle("deviation_needed") if has_corollary else None,
        "updates with σ ≥ √β K α": f"{excluded} of {len(rows)}" if has_corollary else None,
    }


def _looseness(rows: pl.DataFrame) -> str:
    return f"{(rows['error_bound'] / rows['error']).median():,.0f}"


def _figure(data: pl.DataFrame) -> Figure:
    first = data.filter(pl.col("seed") == data["seed"][0])
    nominal = first.filter(pl.col("tier") == Tier.NOMINAL.label)
    with canvas(1, 2, (8.4, 3.2)) as (figure, grid):
        left, right = grid[0]
        left.plot(first["update"], first["error_bound"], ".", color=GREY, label="bound K α")
        left.plot(first["update"], first["error"], ".", color=BLUE, label="|μ − L_μ|")
        left.set(yscale="log", xlabel="update", title="error of the mean's surrogate / ℓ")
        right.plot(nominal["update"], nominal["bound_bound"], ".", color=GREY, label="bound")
        right.plot(nominal["update"], nominal["bound"], ".", color=RED, label="B")
        right.set_yscale("symlog", linthresh=1)
        right.set(xlabel="update", title="B / ℓ² after nominal updates")
        for axes in (left, right):
            axes.legend(fontsize=8)
    return figure
