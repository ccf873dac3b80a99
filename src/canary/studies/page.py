"""A study as its views see it: the rows that the store has, and the page that a view writes. No JAX,
no training."""

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
Line = dict[str, str]
"""A line of a table: its cells by column."""
Lines = Sequence[Line | list[str]]
"""Lines of a table; one without columns has its first cells only."""


@dataclass(frozen=True)
class Row:
    """A row of a study with its results. One that is not shown has no seeds."""

    about: dict[str, Any]
    """Its entry in study.json."""
    config: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    seeds: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The measures of each seed (`store.measure`), its final policy, and the code that trained it."""
    blocks: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Blocks of training of these seeds (`store.thin`)."""
    missing: str = "not trained"
    """Why it is not shown."""

    @property
    def name(self) -> str:
        return self.about["row"]

    @property
    def environment(self) -> str:
        return self.about["environment"]

    @property
    def algorithm(self) -> str:
        return self.about["algorithm"]

    @property
    def label(self) -> str:
        """Method, preset and overrides."""
        changed = "".join(f", {one.rpartition('.')[2]}" for one in self.about["overrides"])
        return f"{self.algorithm} (`{self.about['preset']}`{changed})"

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
    def size(self) -> Line:
        """The last cells of most tables: how much was trained, by which code."""
        return {"seeds × steps": f"{len(self.seeds)} × {self.steps:,}", "code": self.codes}

    @property
    def codes(self) -> str:
        """Fingerprints of the code that trained its seeds."""
        known = (str(one.get("code") or "-") for one in self.seeds.values())
        return " ".join(sorted({code[:6] for codes in known for code in codes.split()}))

    def each(self, name: str) -> list[Any]:
        """A measure of every seed that has it."""
        return [one[name] for one in self.seeds.values() if one[name] is not None]

    def final(self, name: str) -> list[Any]:
        """A number of the final policy of every seed that has one."""
        found = (one.get("final") or {} for one in self.seeds.values())
        return [one[name] for one in found if one.get(name) is not None]


@dataclass(frozen=True)
class Page:
    """A study as a view gets it."""

    folder: Path
    study: dict[str, Any]
    rows: list[Row]
    notes: list[str]
    """Why rows are not shown."""

    @property
    def shown(self) -> list[Row]:
        return [row for row in self.rows if row.seeds]

    @property
    def points(self) -> list[Numbers]:
        if points := store.read_points(self.folder):
            return points
        name = self.folder.name
        raise CanaryError(f"{self.folder} has no points.json; `canary reproduce {name}` makes it.")

    def lines(
        self,
        cells: Callable[[Row], Line],
        names: Callable[[Row], Line] = lambda row: {"row": row.name},
    ) -> Lines:
        """The `names` and `cells` of each row. A row that is not shown says why."""
        return [
            names(row) | cells(row) if row.seeds else [*names(row).values(), row.missing]
            for row in self.rows
        ]

    def write(
        self,
        about: str,
        lines: Lines,
        data: pl.DataFrame | list[Numbers],
        figure: Any = None,
        footnote: str = "",
    ) -> Paths:
        """Write table.md, the data as table.csv, and the figure under the name of the view."""
        study, frame = self.study, pl.DataFrame(data, infer_schema_length=None)
        command = study.get("command") or f"canary reproduce {study['name']}"
        text = [f"# {study['title']}", "", f"`{command}`. {about}", ""]
        paths = {"table": self.folder / "table.md"}
        if frame.is_empty():
            (self.folder / "table.csv").unlink(missing_ok=True)
        else:
            paths["data"] = self.folder / "table.csv"
            write_atomically(paths["data"], frame.write_csv().encode())
        if figure is not None:
            from canary.reporting.figures import save  # matplotlib takes a second

            paths["figure"] = self.folder / f"{study['view']}.png"
            save(figure, paths["figure"])
            text += [f"![{study['title']}]({paths['figure'].name})", ""]
        text += _table(lines)
        if self.notes or footnote:
            text += ["", *(f"- {note}" for note in self.notes), *([footnote] if footnote else [])]
        write_atomically(paths["table"], ("\n".join(text) + "\n").encode())
        return paths


def _table(lines: Lines) -> list[str]:
    """The lines in Markdown, below the columns of the first that has any."""
    head = next((list(line) for line in lines if isinstance(line, dict)), ["row", ""])
    body = [
        [line.get(name, "") for name in head] if isinstance(line, dict) else line for line in lines
    ]
    cells = [head, *(line + [""] * (len(head) - len(line)) for line in body)]
    top, *rest = ["| " + " | ".join(line) + " |" for line in cells]
    return [top, "|" + "---|" * len(head), *rest]


def stored_studies(results: Path) -> list[str]:
    return sorted(path.parent.name for path in results.glob("*/study.json"))


def read_page(folder: Path) -> Page:
    """A study with its rows; what cannot be read is named in the notes."""
    path = folder / "study.json"
    if not path.exists():
        raise CanaryError(
            f"{folder} has no study.json, so there is nothing to rebuild; `canary reproduce "
            f"{folder.name}` makes it."
        )
    study, rows, notes = store.read_sealed(path), [], []
    for about in study["rows"]:
        try:
            rows.append(_read_row(Path(normpath(folder / about["folder"])), about))
        except CanaryError as error:
            rows.append(Row(about, missing="not shown"))
            notes.append(str(error))
    return Page(folder, study, rows, notes)


def _read_row(folder: Path, about: dict[str, Any]) -> Row:
    record = store.read_row(folder)
    if record is None:
        return Row(about)
    known = {seed: record["seeds"].get(str(seed)) for seed in about["seeds"]}
    seeds = {seed: one for seed, one in known.items() if one}
    blocks = store.read_blocks(folder, record).filter(pl.col("seed").is_in(list(seeds)))
    return Row(about, record["config"], int(record["steps"]), seeds, blocks)


def save_views(folder: Path) -> Paths:
    """Write the table and the figure of a study; returns their paths by label."""
    page = read_page(folder)
    return import_module(VIEWS[page.study["view"]]).save(page)
