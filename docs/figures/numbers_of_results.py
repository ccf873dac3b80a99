"""Numbers of results/ in the sentences that quote them: found in a page, compared, and put
right."""

import csv
import json
import re
from pathlib import Path
from statistics import fmean

PLACE = re.compile(r"\{([^{} ]+)/([^/{} ]+) ([^{}:]+):([^{}]+)\}")
OVER_SEEDS = {"least": min, "largest": max, "mean": fmean}
NUMBER = r"([-+]?[\d.,]*\d[%M]?)"


def corrected(text: str, sentence: str, results: Path) -> str:
    """The page with the numbers of this sentence as the results have them; a sentence that is not
    there is an error."""
    literals = PLACE.split(sentence)[::5]
    pattern = re.compile(
        NUMBER.join(r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in literals)
    )
    found = pattern.search(text)
    if found is None:
        raise ValueError(f"no sentence like: {sentence}")
    numbers = [shown(cell(results, *place[:3]), place[3]) for place in PLACE.findall(sentence)]
    for index in range(len(numbers), 0, -1):  # from the last on, so that places stay
        start, end = found.span(index)
        text = text[:start] + numbers[index - 1] + text[end:]
    return text


def shown(value: float, form: str) -> str:
    return (
        f"{value / 1e6:g}M" if form == "M" else format(round(value) if form == "d" else value, form)
    )


def cell(results: Path, study: str, variant: str, column: str) -> float:
    """One number of the store: of a table, or of a JSON file of its group."""
    if "@" in column:
        return _of_seed(results / study / variant, *column.split("@"))
    if column.startswith("summary."):
        row = json.loads((results / study / variant / "summary.json").read_text())
        column, safe = column.removeprefix("summary."), "safe_fraction"
    else:
        with (results / study / "table.csv").open() as file:
            row = next(row for row in csv.DictReader(file) if row["variant"] == variant)
        safe = column.removesuffix("_seeds")
    if column.endswith("safe_seeds"):
        return float(row[safe]) * float(row["seeds"])
    return float(row[column])


def _of_seed(group: Path, column: str, seed: str) -> float:
    kind, _, name = column.rpartition(".")
    content = json.loads((group / f"{kind or 'summary'}.json").read_text())
    values = [value for value in content[f"{name}_per_seed"] if value is not None]
    if seed in OVER_SEEDS:
        return OVER_SEEDS[seed](values)
    seeds = json.loads((group / "summary.json").read_text())["seed_ids"]
    return content[f"{name}_per_seed"][seeds.index(int(seed))]
