"""A study as its views get it: the rows that the store has, and the page that a view writes. No
JAX, no training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from os.path import normpath
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import One, from_dict, one_cost
from canary.errors import CanaryError
from canary.runs.files import write_atomically
from canary.studies import store

VIEWS = {
    "study": "canary.studies.table",
    "table1": "canary.studies.paper.table1",
    "training-curves": "canary.studies.paper.training_curves",
    "epsilon-sweep": "canary.studies.paper.epsilon_sweep",
    "anatomy": "canary.studies.paper.anatomy",
    "gaussian-tail": "canary.studies.paper.gaussian_tail",
    "relative-variance": "canary.studies.paper.relative_variance",
    "worst-case": "canary.studies.paper.worst_case",
}  # the module of each view, which has a function `save(page)`

Paths = dict[str, Path]
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A row of a study with the seeds that are shown."""

    about: dict[str, Any]
    """Its entry in study.json."""
    folder: Path
    record: dict[str, Any] | None = None
    """row.json; None if the row is not shown."""
    missing: str = "not trained"
    """Why it is not shown."""
    seeds: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.about["row"])

    @property
    def label(self) -> str:
        """Method, preset and overrides."""
        changed = "".join(f", {one.rpartition('.')[2]}" for one in self.about["overrides"])
        return f"{self.about['algorithm']} (`{self.about['preset']}`{changed})"

    @property
    def is_shown(self) -> bool:
        return bool(self.seeds)

    @property
    def config(self) -> dict[str, Any]:
        assert self.record is not None
        return self.record["config"]

    @property
    def steps(self) -> int:
        assert self.record is not None
        return int(self.record["steps"])

    @property
    def environment(self) -> str:
        return str(self.config["environment"]["name"])

    @property
    def algorithm(self) -> str:
        return str(self.config["algorithm"]["name"])

    @property
    def preset(self) -> str:
        return str(self.config["preset"])

    @property
    def constraint(self) -> One:
        return one_cost(from_dict(self.config["constraint"]), "A study")

    @property
    def limit(self) -> float:
        return self.constraint.limit

    @property
    def epsilon(self) -> float | None:
        return None if self.constraint.kind == "mean" else self.constraint.share

    @property
    def size(self) -> str:
        return f"{len(self.seeds)} × {self.steps:,}"

    @property
    def codes(self) -> str:
        """Fingerprints of the code that trained its seeds."""
        known = (str(one.get("code") or "-") for one in self.seeds.values())
        return " ".join(sorted({code[:6] for codes in known for code in codes.split()}))

    def each(self, name: str) -> list[Any]:
        """A measure of every seed."""
        return [one[name] for one in self.seeds.values()]

    def final(self, name: str) -> list[Any]:
        """A number of the final policy of every seed that has one."""
        found = (one.get("final") or {} for one in self.seeds.values())
        return [one[name] for one in found if one.get(name) is not None]

    def blocks(self) -> pl.DataFrame:
        """Blocks of training of its seeds (`store.thin`)."""
        assert self.record is not None
        blocks = store.read_blocks(self.folder, self.record)
        return blocks.filter(pl.col("seed").is_in(list(self.seeds)))


@dataclass(frozen=True)
class Page:
    """A study as a view gets it."""

    folder: Path
    study: dict[str, Any]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    @property
    def shown(self) -> list[Row]:
        return [row for row in self.rows if row.is_shown]

    def table(
        self,
        about: str,
        head: Sequence[str],
        cells: Callable[[Row], Sequence[Sequence[str]]],
        data: pl.DataFrame | list[Numbers],
        figure: str | None = None,
        names: Callable[[Row], Sequence[str]] = lambda row: (row.name,),
    ) -> Paths:
        """Write table.md, with the lines that `cells` makes of each row, and table.csv. A row that
        is not shown has its `names` and says why."""
        lines: list[Sequence[str]] = []
        for row in self.rows:
            named = (*names(row), row.missing)
            lines += cells(row) if row.is_shown else [(*named, *[""] * (len(head) - len(named)))]
        return self.write(about, head, lines, data, figure)

    def write(
        self,
        about: str,
        head: Sequence[str],
        lines: Sequence[Sequence[str]],
        data: pl.DataFrame | list[Numbers],
        figure: str | None = None,
        footnote: str = "",
    ) -> Paths:
        command = self.study.get("command") or f"canary reproduce {self.study['name']}"
        text = [f"# {self.study['title']}", "", f"`{command}`. {about}", ""]
        paths = {"table": self.folder / "table.md", "data": self.folder / "table.csv"}
        if figure is not None:
            text += [f"![{self.study['title']}]({figure})", ""]
            paths["figure"] = self.folder / figure
        text += [_line(head), "|" + "---|" * len(head), *map(_line, lines)]
        below = [f"- {note}" for note in self.notes] + ([footnote] if footnote else [])
        text += ["", *below] if below else []
        write_atomically(paths["table"], ("\n".join(text) + "\n").encode())
        frame = pl.DataFrame(data, infer_schema_length=None) if isinstance(data, list) else data
        if frame.is_empty():
            paths["data"].unlink(missing_ok=True)
            return {label: path for label, path in paths.items() if label != "data"}
        write_atomically(paths["data"], frame.write_csv().encode())
        return paths


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def stored_studies(results: Path) -> list[str]:
    return sorted(path.parent.name for path in results.glob("*/study.json"))


def read_study(folder: Path) -> dict[str, Any]:
    path = folder / "study.json"
    if not path.exists():
        raise CanaryError(
            f"{folder} has no study.json, so there is nothing to rebuild; `canary reproduce "
            f"{folder.name}` makes it."
        )
    study = store.read_sealed(path)
    if not {"name", "title", "view", "rows"} <= set(study) or study["view"] not in VIEWS:
        raise CanaryError(f"{path} does not describe a study; reproduce the study again.")
    return study


def read_page(folder: Path) -> Page:
    """A study with its rows; what cannot be read is named in the notes."""
    study, notes = read_study(folder), []
    rows = []
    for about in study["rows"]:
        place = Path(normpath(folder / about["folder"]))
        try:
            rows.append(_read_row(place, about))
        except CanaryError as error:
            rows.append(Row(about, place, missing="not shown"))
            notes.append(str(error))
    for about in study["rows"]:
        notes += [f"`{name}` has the settings of `{about['row']}`." for name in about["also"]]
    return Page(folder, study, rows, notes)


def _read_row(folder: Path, about: dict[str, Any]) -> Row:
    record = store.read_row(folder)
    if record is None:
        return Row(about, folder)
    found = record["config"]["environment"]["name"], record["config"]["algorithm"]["name"]
    if record["row"] != folder.name or found != (about["environment"], about["algorithm"]):
        raise CanaryError(f"{folder} holds the results of another row; restore it.")
    store.read_blocks(folder, record)
    seeds = {seed: record["seeds"].get(str(seed)) for seed in about["seeds"]}
    return Row(about, folder, record, seeds={seed: one for seed, one in seeds.items() if one})


def save_views(folder: Path) -> Paths:
    """Write the table and the figure of a study; returns their paths by label."""
    page = read_page(folder)
    return import_module(VIEWS[page.study["view"]]).save(page)
