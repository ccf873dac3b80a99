"""The store of results. Its unit is (environment, algorithm, settings, seed); a group holds the
seeds of one setting.

    RESULTS/STUDY/VARIANT/        config.json       the settings, with the seeds that are there
                                  episodes.parquet  metrics.parquet   every training episode and update
                                  summary.json      the numbers of the paper's table, per seed and over seeds
                                  exact.json        final policies by dynamic programming, in a finite environment
                                  final.json        final policies on fresh episodes, in any other
                                  provenance.json   which code made each seed, and how long it took; written last

A group of the same variant with other settings, or settings that this version cannot read, is kept
where it is; new ones go beside it as VARIANT-<key>. Files are replaced whole, and `provenance.json`
is the last, so a group that was being extended when the process died is as it was: what is known
per seed says of which seeds, and tables may hold seeds that do not count yet. No JAX here.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canary.errors import CanaryError
from canary.reporting.summary import summarise_tables
from canary.runs import directory
from canary.studies.checks import read_config, read_final, read_provenance, read_summary

if TYPE_CHECKING:
    import polars

TABLES = ("episodes", "metrics")
PER_SEED = ("exact", "final")


@dataclass(frozen=True)
class Units:
    """Seeds of one setting as training left them; what is known per seed is keyed by the seed."""

    config: dict[str, Any]
    steps: int
    tables: "dict[str, polars.DataFrame]"
    provenance: dict[int, dict[str, Any]]
    per_seed: dict[str, dict[int, dict[str, Any]]]
    """`exact` and `final`, where they are known."""

    @property
    def seeds(self) -> list[int]:
        return [int(seed) for seed in self.config["training"]["seeds"]]

    def only(self, seeds: tuple[int, ...]) -> "Units":
        """The same without the other seeds."""
        import polars as pl

        return Units(
            config=self.config | {"training": self.config["training"] | {"seeds": list(seeds)}},
            steps=self.steps,
            tables={
                kind: table.filter(pl.col("seed").is_in(seeds))
                for kind, table in self.tables.items()
            },
            provenance={seed: self.provenance[seed] for seed in seeds},
            per_seed={
                kind: {seed: row for seed, row in rows.items() if seed in seeds}
                for kind, rows in self.per_seed.items()
            },
        )


def stored_seeds(group: Path) -> list[int]:
    """The seeds that a group holds; none if there is no group, or none that is complete."""
    units = read_provenance(group)
    if units is not None:
        return [int(seed) for seed in units]
    if (group / "summary.json").exists():  # made before there was a provenance
        return list(read_summary(group, read_config(group))["seed_ids"])
    return []


def read_units(group: Path) -> Units:
    """All seeds of a group; a file that is missing or damaged is named in a sentence."""
    seeds, config = stored_seeds(group), read_config(group)
    summary, provenance = read_summary(group, config), read_provenance(group) or {}
    per_seed = {
        kind: _by_seed(read_final(group / f"{kind}.json", seeds), seeds)
        for kind in PER_SEED
        if (group / f"{kind}.json").exists()
    }
    return Units(
        config=config | {"training": config["training"] | {"seeds": seeds}},
        steps=int(summary["total_steps"]),
        tables={
            kind: read_table(group, kind) for kind in TABLES if (group / f"{kind}.parquet").exists()
        },
        provenance={seed: provenance.get(str(seed), {}) for seed in seeds},
        per_seed=per_seed,
    )


def read_table(group: Path, kind: str) -> "polars.DataFrame":
    import polars as pl

    path = group / f"{kind}.parquet"
    try:
        return pl.read_parquet(path.read_bytes())
    except FileNotFoundError:
        raise CanaryError(f"{path} is missing.") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise CanaryError(
            f"{path} is damaged ({reason}); restore it, or delete the folder and reproduce."
        ) from error


def add(group: Path, new: Units) -> None:
    """Put seeds into a group, beside those that are there."""
    group.mkdir(parents=True, exist_ok=True)
    known = stored_seeds(group)
    merged = _merged(read_units(group), new) if known else new
    if not known:
        # Said first: a new group without provenance would pass for one of the time before there was
        # any.
        directory.write_json(group / "provenance.json", {"units": {}})
    for kind, table in merged.tables.items():
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        directory.write_atomically(group / f"{kind}.parquet", buffer.getvalue())
    for kind, known in merged.per_seed.items():
        directory.write_json(group / f"{kind}.json", _by_column(known, merged.seeds))
    directory.write_json(group / "config.json", merged.config)
    directory.write_json(group / "summary.json", summary_of(merged))
    units = {str(seed): merged.provenance[seed] for seed in merged.seeds}
    directory.write_json(group / "provenance.json", {"units": units})


def summary_of(units: Units) -> dict[str, Any]:
    """The numbers of the paper's table, of these seeds alone."""
    seconds: list[Any] = [entry.get("train_seconds") for entry in units.provenance.values()]
    return summarise_tables(
        units.config,
        units.tables["episodes"],
        units.tables["metrics"],
        steps=units.steps,
        seconds=sum(seconds) if None not in seconds else None,
    )


def _merged(old: Units, new: Units) -> Units:
    import polars as pl

    kept = [seed for seed in old.seeds if seed not in new.seeds]
    seeds = sorted([*kept, *new.seeds])
    tables = {
        kind: pl.concat(
            [old.tables[kind].filter(pl.col("seed").is_in(kept)), new.tables[kind]],
            how="diagonal_relaxed",
        ).sort("seed", "iteration", maintain_order=True)
        for kind in TABLES
        if kind in old.tables
    }
    tables.setdefault("metrics", new.tables["metrics"])
    return Units(
        config=new.config | {"training": new.config["training"] | {"seeds": seeds}},
        steps=new.steps,
        tables=tables,
        provenance=old.provenance | new.provenance,
        per_seed={
            kind: {
                seed: known
                for seed, known in (old.per_seed.get(kind, {}) | new.per_seed.get(kind, {})).items()
                if seed in seeds
            }
            for kind in PER_SEED
            if kind in old.per_seed or kind in new.per_seed
        },
    )


def _by_seed(columns: dict[str, Any], stored: list[int]) -> dict[int, dict[str, Any]]:
    """{"seeds": [3, 4], "x_per_seed": [a, b]} as {3: {"x": a}, ...}; a seed of which nothing is
    known is left out."""
    seeds = columns.get("seeds", stored)  # older files are of the stored seeds
    lists = {
        name.removesuffix("_per_seed"): values
        for name, values in columns.items()
        if name.endswith("_per_seed")
    }
    rows = {
        int(seed): {name: values[index] for name, values in lists.items()}
        for index, seed in enumerate(seeds)
    }
    return {
        seed: row for seed, row in rows.items() if any(value is not None for value in row.values())
    }


def _by_column(rows: dict[int, dict[str, Any]], seeds: list[int]) -> dict[str, Any]:
    names = list(next(iter(rows.values()), {}))
    columns = {
        f"{name}_per_seed": [rows.get(seed, {}).get(name) for seed in seeds] for name in names
    }
    return {"seeds": seeds, **columns}
