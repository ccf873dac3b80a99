"""`canary sweep`: every combination of some values of some settings as a study of its own."""

import re
from collections.abc import Sequence
from itertools import product

from canary.errors import CanaryError
from canary.studies.data import Study, Variant

LARGEST = 1000


def swept(texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """`algo.target_kl=0.01,0.02` as (path, values); a value in brackets may hold commas: `algo.hidden=[64,64],[32]`."""
    found: list[tuple[str, list[str]]] = []
    for text in texts:
        path, equals, values = text.partition("=")
        parts = re.findall(r"\[[^\]]*\]|[^,\[\]]+", values)
        if not equals or not path.strip() or not parts:
            raise CanaryError(
                f"A sweep takes section.setting=value,value, such as algo.target_kl=0.01,0.02, not {text!r}."
            )
        if path in dict(found):
            raise CanaryError(f"{path} is swept twice; give all of its values at once, separated by commas.")
        values = [part.strip() for part in parts]
        if len(set(values)) < len(values):
            hint = (
                f" A list is written in brackets: {path}=[{','.join(values)}]."
                if path.endswith("hidden")
                else ""
            )
            raise CanaryError(f"{path} has the value {values[0]} twice.{hint}")
        found.append((path.strip(), values))
    return found


def sweep_study(
    environment: str, algorithm: str, preset: str, axes: list[tuple[str, list[str]]], seeds: tuple[int, ...]
) -> Study:
    """A variant per combination, named by the values that vary."""
    combinations = list(product(*(values for _, values in axes)))
    if len(combinations) > LARGEST:
        raise CanaryError(f"The sweep has {len(combinations)} combinations; at most {LARGEST} are allowed.")
    varying = [len(values) > 1 for _, values in axes]
    variants = []
    for combination in combinations:
        settings = [(path, value) for (path, _), value in zip(axes, combination, strict=True)]
        named = [pair for pair, varies in zip(settings, varying, strict=True) if varies] or settings
        name = "--".join(f"{path.rpartition('.')[2]}-{value}" for path, value in named) or "default"
        variants.append(
            Variant(
                name=re.sub(r"[^A-Za-z0-9_.+-]+", "_", name)[:120],
                about=" ".join(f"{path}={value}" for path, value in named),
                algorithm=algorithm,
                preset=preset,
                overrides=tuple(f"{path}={value}" for path, value in settings),
            )
        )
    if len({variant.name for variant in variants}) < len(variants):
        raise CanaryError(
            "Two combinations of the sweep would have the same name; sweep fewer settings at once."
        )
    title = f"{algorithm} on {environment}: {', '.join(path for path, _ in axes) or 'as it is'}"
    return Study(title=title, environment=environment, seeds=seeds, total_steps=0, variants=tuple(variants))
