"""A study as its views see it: the rows that the store has, and the page that a view writes. No JAX,
no training."""

from collections.abc import Callable, Iterable, Sequence
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
    def size(self) -> str:
        return f"{len(self.seeds)} × {self.steps:,}"

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
    """Why rows are not shown, and which rows are the same."""

    @property
    def shown(self) -> list[Row]:
        return [row for row in self.rows if row.seeds]

    def lines(
        self,
        head: Sequence[str],
        cells: Callable[[Row], Iterable[Sequence[str]]],
        names: Callable[[Row], Sequence[str]] = lambda row: (row.name,),
    ) -> list[Sequence[str]]:
        """The lines that `cells` makes of each row. A row that is not shown says why after its
        `names`."""
        lines: list[Sequence[str]] = []
        for row in self.rows:
            named = (*names(row), row.missing)
            empty = [""] * (len(head) - len(named))
            lines += cells(row) if row.seeds else [(*named, *empty)]
        return lines

    def write(
        self,
        about: str,
        head: Sequence[str],
        lines: Iterable[Sequence[str]],
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
        body = ["| " + " | ".join(cells) + " |" for cells in (head, *lines)]
        text += [body[0], "|" + "---|" * len(head), *body[1:]]
        if self.notes or footnote:
            text += ["", *(f"- {note}" for note in self.notes), *([footnote] if footnote else [])]
        write_atomically(paths["table"], ("\n".join(text) + "\n").encode())
        return paths


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
    study = store.read_sealed(path)
    if not {"name", "title", "view", "rows"} <= set(study) or study["view"] not in VIEWS:
        raise CanaryError(f"{path} does not describe a study; reproduce the study again.")
    rows, notes = [], []
    for about in study["rows"]:
        try:
            rows.append(_read_row(Path(normpath(folder / about["folder"])), about))
        except CanaryError as error:
            rows.append(Row(about, missing="not shown"))
            notes.append(str(error))
        notes += [f"`{name}` has the settings of `{about['row']}`." for name in about["also"]]
    return Page(folder, study, rows, notes)


def _read_row(folder: Path, about: dict[str, Any]) -> Row:
    record = store.read_row(folder)
    if record is None:
        return Row(about)
    config = record["config"]
    found = config["environment"]["name"], config["algorithm"]["name"]
    if record["row"] != folder.name or found != (about["environment"], about["algorithm"]):
        raise CanaryError(f"{folder} holds the results of another row; restore it.")
    known = {seed: record["seeds"].get(str(seed)) for seed in about["seeds"]}
    seeds = {seed: one for seed, one in known.items() if one}
    blocks = store.read_blocks(folder, record).filter(pl.col("seed").is_in(list(seeds)))
    return Row(about, config, int(record["steps"]), seeds, blocks)


def save_views(folder: Path) -> Paths:
    """Write the table and the figure of a study; returns their paths by label."""
    page = read_page(folder)
    return import_module(VIEWS[page.study["view"]]).save(page)
