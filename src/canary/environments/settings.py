"""The settings of an environment as plain data, and the same environment with other settings."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, cast

from canary.environments.protocol import Environment
from canary.errors import CanaryError


def settings_of(environment: Environment) -> dict[str, Any]:
    """The fields of a dataclass, or what a method `settings()` returns, as JSON data."""
    if callable(own := getattr(environment, "settings", None)):
        found: Any = own()
    elif dataclasses.is_dataclass(environment):
        found = dataclasses.asdict(cast(Any, environment))
    else:
        raise CanaryError(
            f"{type(environment).__name__} must be a dataclass (@dataclass(frozen=True)), whose "
            "fields are its settings, or have a method settings() that returns them."
        )
    for name, value in found.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise CanaryError(
                f"The setting {name} of {type(environment).__name__} is {_short(value)}, which "
                "JSON cannot hold; use numbers, texts, true or false, and lists or tables of them."
            ) from None
    return json.loads(json.dumps(found))


def with_settings(environment: Environment, changes: Mapping[str, Any]) -> Environment:
    """The same environment with some settings changed."""
    if callable(own := getattr(environment, "with_settings", None)):
        return own(changes)
    return dataclasses.replace(cast(Any, environment), **changes)


def name_of_environment(environment: Environment) -> str:
    """Its member `name`, or the name of its class."""
    own = getattr(environment, "name", None)
    return own if isinstance(own, str) else type(environment).__name__


def _short(value: Any) -> str:
    text = repr(value)
    return f"{text[:40]}..." if len(text) > 40 else text
