"""`canary sweep`: a study of all combinations of some values of some settings."""

import re
from collections.abc import Sequence
from itertools import product

from canary.errors import CanaryError
from canary.studies.catalogue import Row, Study

LARGEST_SWEEP = 1000  # combinations
Axes = list[tuple[str, list[str]]]


def swept(texts: Sequence[str]) -> Axes:
    """`algo.target_kl=0.01,0.02` as (setting, values). A list is written in brackets:
    `algo.hidden=[64,64],[32]`."""
    found: Axes = []
    for text in texts:
        path, equals, values = text.partition("=")
        parts = [part.strip() for part in re.findall(r"\[[^\]]*\]|[^,\[\]]+", values)]
        if not equals or not path.strip() or not parts:
            raise CanaryError(
                "A sweep takes section.setting=value,value, such as algo.target_kl=0.01,0.02, not "
                f"{text!r}."
            )
        if path.strip() in dict(found):
            raise CanaryError(f"{path} is swept twice; give all of its values at once.")
        if len(set(parts)) < len(parts):
            raise CanaryError(
                f"{path} has a value twice. A list is written in brackets: "
                f"{path}=[{','.join(parts)}]."
            )
        found.append((path.strip(), parts))
    return found


def sweep_study(
    environment: str,
    algorithm: str,
    preset: str,
    axes: Axes,
    seeds: tuple[int, ...],
    command: str | None = None,
) -> Study:
    """A row per combination, named by the values that vary."""
    combinations = list(product(*(values for _, values in axes)))
    if len(combinations) > LARGEST_SWEEP:
        raise CanaryError(
            f"The sweep has {len(combinations)} combinations; at most {LARGEST_SWEEP} are allowed."
        )
    varying = {path for path, values in axes if len(values) > 1}
    rows = []
    for combination in combinations:
        settings = [(path, value) for (path, _), value in zip(axes, combination, strict=True)]
        named = [pair for pair in settings if pair[0] in varying] or settings
        name = "--".join(f"{path.rpartition('.')[2]}-{value}" for path, value in named) or "default"
        rows.append(
            Row(
                name=re.sub(r"[^A-Za-z0-9_.+-]+", "_", name)[:120],
                about=" ".join(f"{path}={value}" for path, value in named),
                environment=environment,
                algorithm=algorithm,
                preset=preset,
                overrides=tuple(f"{path}={value}" for path, value in settings),
                seeds=seeds,
                steps=None,
            )
        )
    if len({row.name for row in rows}) < len(rows):
        raise CanaryError("Two combinations would have the same name; sweep fewer settings.")
    title = f"{algorithm} on {environment}: {', '.join(path for path, _ in axes) or 'as it is'}"
    return Study(title=title, rows=tuple(rows), command=command)
