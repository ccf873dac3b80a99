"""What the stored files of a study must hold: every field that a view reads, its type and its
length, checked when the file is read. What is wrong is one sentence that names the file; no JAX."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.constraints import from_dict
from canary.errors import CanaryError
from canary.runs import directory


@dataclass(frozen=True)
class Kind:
    """What a field may be: in words, and as a test."""

    text: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _or_null(kind: Kind) -> Kind:
    return Kind(f"{kind.text} or null", lambda value: value is None or kind.holds(value))


def _list_of(kind: Kind, text: str) -> Kind:
    return Kind(text, lambda value: isinstance(value, list) and all(map(kind.holds, value)))


TEXT = Kind("a text", lambda value: isinstance(value, str))
TRUTH = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
OBJECTS = _list_of(OBJECT, "a list of objects")
NUMBER = Kind("a number", _is_number)
SHARE = Kind("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
COUNT = Kind("a whole number above 0", lambda value: _is_whole(value) and value > 0)
WHOLE = Kind("a whole number", _is_whole)
TEXTS = _list_of(TEXT, "a list of texts")
SEEDS = _list_of(WHOLE, "a list of whole numbers")
PER_SEED = _list_of(_or_null(NUMBER), "a list of numbers and nulls")
SHARES = _list_of(_or_null(SHARE), "a list of numbers from 0 to 1 and nulls")
PLACE = Kind(
    "the name of a group, or ../STUDY/GROUP",
    lambda value: (
        isinstance(value, str)
        and re.fullmatch(r"(\.\./[^/\\.][^/\\]*/)?[^/\\.][^/\\]*", value) is not None
    ),
)

Fields = Mapping[str, Kind]
STUDY: Fields = {"name": TEXT, "title": TEXT, "view": TEXT, "rows": OBJECTS}
ROW: Fields = {
    "variant": TEXT, "about": TEXT, "group": PLACE, "overrides": TEXTS, "paper": _or_null(OBJECT),
}  # fmt: skip
ROW_TOO: Fields = {
    "environment": TEXT, "algorithm": TEXT, "preset": TEXT, "steps": WHOLE, "seeds": SEEDS,
    "trained": TRUTH, "also": TEXTS,
}  # fmt: skip
PAPER: Fields = dict.fromkeys(("violation", "jitter", "safe", "reward"), NUMBER)
PAPER_ERRORS = ("violation_error", "jitter_error", "reward_error")
SUMMARY: Fields = {
    "env": TEXT, "algorithm": TEXT, "preset": TEXT, "limit": NUMBER, "epsilon": _or_null(NUMBER), "seeds": COUNT,
    "seed_ids": SEEDS, "total_steps": COUNT,
    **dict.fromkeys(
        ("violation_standard_error", "violation_jitter", "jitter_standard_error", "return_mean",
         "return_standard_error", "steps_per_second"), _or_null(NUMBER)),
    **dict.fromkeys(("violation_probability", "safe_fraction"), _or_null(SHARE)),
    **dict.fromkeys(
        ("return_per_seed", "cost_per_seed", "cost_deviation_per_seed"), PER_SEED),
    "violation_per_seed": SHARES,
}  # fmt: skip
SUMMARY_TOO: Fields = {
    "status": TEXT, "planned_steps": WHOLE, "warnings": OBJECT,
    "constraint_value": _or_null(NUMBER), "constraint_standard_error": _or_null(NUMBER),
}  # fmt: skip
TRAINING: Fields = {"seeds": SEEDS, "environments": COUNT, "rollout_length": COUNT}
UNIT_TOO: Fields = {
    "versions": OBJECT, "code": _or_null(TEXT), "train_seconds": _or_null(NUMBER),
}  # fmt: skip
FINAL: Fields = {"violation_per_seed": SHARES, "return_per_seed": PER_SEED}
POINT: Fields = {
    "constraint": TEXT, "limit": NUMBER, "epsilon": NUMBER, "estimator": TEXT, "seed": _or_null(WHOLE),
    "value": _or_null(NUMBER), "gradient": _or_null(NUMBER),
}  # fmt: skip


def damaged(path: Path, reason: str) -> CanaryError:
    again = ", or reproduce the study again" if path.name == "study.json" else ""
    return CanaryError(f"{path} is damaged ({reason}); restore it{again}.")


def check_fields(
    path: Path,
    content: Mapping[str, Any],
    needed: Fields,
    optional: Fields | None = None,
    within: str = "",
) -> None:
    """Raise a sentence about the first field that is missing or is not of its kind."""
    for name in needed:
        if name not in content:
            raise damaged(path, f"{within or 'it'} has no {name!r}")
    for name, kind in {**needed, **(optional or {})}.items():
        if name in content and not kind.holds(content[name]):
            raise damaged(path, f"{f'{within}.' if within else ''}{name} is not {kind.text}")


def read_study(results: Path) -> dict[str, Any]:
    """study.json: which group is which row."""
    path = results / "study.json"
    study = directory.read_json(path)
    check_fields(path, study, STUDY, {"command": TEXT, "seeds": SEEDS})
    errors = NUMBER if study["view"] == "table1" else _or_null(NUMBER)
    for number, row in enumerate(study["rows"]):
        check_fields(path, row, ROW, ROW_TOO, f"rows[{number}]")
        if row["paper"] is not None:
            fields = dict.fromkeys(PAPER_ERRORS, errors)
            needed = {**PAPER, **(fields if study["view"] == "table1" else {})}
            check_fields(path, row["paper"], needed, fields, f"rows[{number}].paper")
    return study


def read_config(group: Path) -> dict[str, Any]:
    """config.json: the settings of a group and its seeds."""
    path = group / "config.json"
    config = directory.read_json(path)
    check_config(path, config)
    return config


def check_config(path: Path, config: Mapping[str, Any]) -> None:
    """What is read of a configuration without JAX; what its settings mean is for `config` to
    say."""
    sections = ("environment", "constraint", "algorithm", "training")
    check_fields(path, config, dict.fromkeys(sections, OBJECT), {"preset": TEXT})
    for section in ("environment", "algorithm"):
        check_fields(path, config[section], {"name": TEXT}, {"settings": OBJECT}, section)
    check_fields(path, config["training"], TRAINING, None, "training")
    try:
        from_dict(config["constraint"])
    except CanaryError as error:
        raise damaged(path, str(error).rstrip(".")) from error


def read_summary(group: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """summary.json, which must be of the group's settings."""
    path = group / "summary.json"
    summary = directory.read_json(path)
    check_fields(path, summary, SUMMARY, SUMMARY_TOO)
    check_lengths(path, summary, summary["seed_ids"])
    if summary["seeds"] != len(summary["seed_ids"]):
        raise damaged(path, f"it is of {len(summary['seed_ids'])} seeds, not {summary['seeds']}")
    constraint = from_dict(config["constraint"])
    expected = {
        "env": config["environment"]["name"],
        "algorithm": config["algorithm"]["name"],
        "limit": constraint.limit,
        "epsilon": None if constraint.kind == "mean" else constraint.share,
    }
    for name, value in expected.items():
        if summary[name] != value:
            raise CanaryError(
                f"{path} is of another setting than config.json beside it ({name} {summary[name]}, "
                f"not {value}); restore it."
            )
    return summary


def read_final(path: Path, stored: list[int]) -> dict[str, Any]:
    """exact.json or final.json: what is known of the final policies, in lists per seed."""
    final = directory.read_json(path)
    check_fields(path, final, FINAL, {"seeds": SEEDS})
    check_lengths(path, final, final.get("seeds", stored))  # older files are of the stored seeds
    return final


def check_lengths(path: Path, content: Mapping[str, Any], seeds: list[int]) -> None:
    """Every list per seed has an entry for each seed, and no seed stands twice."""
    if len(set(seeds)) < len(seeds):
        raise damaged(path, "a seed stands twice in it")
    for name, values in content.items():
        if not name.endswith("_per_seed"):
            continue
        if not isinstance(values, list) or len(values) != len(seeds):
            raise damaged(path, f"{name} is not a list of {len(seeds)} entries, one per seed")


def read_provenance(group: Path) -> dict[str, dict[str, Any]] | None:
    """What provenance.json says of each seed; None if there is no such file."""
    path = group / "provenance.json"
    if not path.exists():
        return None
    content = directory.read_json(path)
    check_fields(path, content, {"units": OBJECT})
    for seed, unit in content["units"].items():
        if not re.fullmatch(r"[0-9]{1,12}", seed):
            raise damaged(path, f"{seed!r:.40} is no seed")
        if not isinstance(unit, dict):
            raise damaged(path, f"units.{seed} is not an object")
        check_fields(path, unit, {}, UNIT_TOO, f"units.{seed}")
    return content["units"]


def read_points(path: Path) -> list[dict[str, Any]]:
    """points.json of `relative-variance`; none if there is no such file."""
    if not path.exists():
        return []
    content = directory.read_json(path)
    check_fields(path, content, {"points": OBJECTS})
    for number, point in enumerate(content["points"]):
        check_fields(path, point, POINT, None, f"points[{number}]")
    return content["points"]
