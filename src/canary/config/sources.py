"""Environments by reference: a text that names code, and the arguments of that code.

    IcyLake                        one of ours
    package.module:Factory         a class or function of yours that makes an environment
    gymnasium:Pendulum-v1          a Gymnasium id, or gymnasium:package.module:make for a function of yours
    gymnax:CartPole-v1   brax:ant   playground:CartpoleBalance   crax:safe_goal_point

Only `build` imports and runs the code that a reference names.
"""

import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from canary import environments
from canary.checking.structure import check_structure
from canary.config.settings import canonical, changed, parse
from canary.environments import ENVIRONMENTS
from canary.environments.protocol import Environment, settings_of, with_settings
from canary.errors import CanaryError, nearest
from canary.host.references import describe, look_up, name_of
from canary.values import converted, from_dict

ADAPTERS = ("gymnasium", "gymnax", "brax", "playground", "crax")


@dataclass(frozen=True)
class Source:
    """A reference, from which `build` makes an environment."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    cost: str | None = None
    """Where the cost is, for environments of other packages; None if the environment states it."""

    @property
    def adapter(self) -> str | None:
        """The adapter that the reference names, if it names one."""
        head = self.name.partition(":")[0]
        return head if ":" in self.name and head in ADAPTERS else None

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={json.dumps(v)}" for name, v in self.arguments.items())
        cost = f" with the cost {self.cost}" if self.cost else ""
        return f"{self.name}({arguments}){cost}"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def make_environment(
    env: str | Environment, changes: Mapping[str, Any], cost: str | None = None
) -> Environment:
    """The environment that `env` is or names, with some settings changed."""
    if isinstance(env, str):
        return build(Source(env, {name: parse(value) for name, value in changes.items()}, cost))
    check_structure(env)
    if cost is not None:
        raise CanaryError("`cost` is for references to environments; this one states its own.")
    if not changes:
        return env
    if callable(getattr(env, "with_settings", None)):
        return with_settings(env, {name: parse(value) for name, value in changes.items()})
    return changed(env, changes, "env")


def build(source: Source) -> Environment:
    """Import the code that a reference names and make the environment."""
    if source.adapter is not None:
        cost = {} if source.cost is None else {"cost": source.cost}
        adapt = {"gymnasium": environments.from_gymnasium, "gymnax": environments.from_gymnax}
        make = adapt.get(source.adapter, environments.from_brax)
        return make(source.name, **source.arguments, **cost)
    if re.search(r"-v\d+$", source.name):  # a Gymnasium id
        raise CanaryError(
            f"There is no environment called {source.name!r}; try gymnasium:{source.name}."
        )
    if source.cost is not None:
        raise CanaryError(
            f"{source.name} states its own cost; --cost is for environments of other packages."
        )
    if ":" not in source.name:
        try:
            name = canonical(source.name, ENVIRONMENTS, "environment")
        except CanaryError as error:
            raise CanaryError(f"{error} One of your own is package.module:Class.") from None
        return from_dict(ENVIRONMENTS[name], source.arguments, "env")
    factory = look_up(source.name)
    _check_names(factory, source.arguments)
    try:
        environment = factory(**converted(factory, source.arguments, "env."))
    except CanaryError:
        raise
    except (Exception, SystemExit) as error:
        raise CanaryError(f"{source.name} could not be made ({describe(error)}).") from error
    if isinstance(environment, Environment):
        return environment
    if hasattr(environment, "observation_space"):
        raise CanaryError(
            f"{source.name} makes a Gymnasium environment; write --env gymnasium:{source.name} and "
            "name its cost with --cost."
        )
    raise CanaryError(
        f"{source.name} makes a {type(environment).__name__}, which is not an environment."
    )


def _check_names(factory: Any, arguments: Mapping[str, Any]) -> None:
    """Raise if the factory of an environment does not take all of these arguments."""
    try:
        known = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some classes written in C
        return
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()):
        return
    if unknown := arguments.keys() - known:
        name = min(unknown)
        raise CanaryError(f"env has no setting {name!r}{nearest(name, known)}")


def source_of(environment: Environment) -> Source | None:
    """The reference by which another process can make this environment; None if there is none."""
    if callable(own := getattr(environment, "source", None)):
        found = own()
        return None if found is None else Source(**found)
    name = name_of(type(environment))
    if name is None or not dataclasses.is_dataclass(environment):
        return None
    names = {each.name for each in dataclasses.fields(cast(Any, environment)) if each.init}
    arguments = {key: value for key, value in settings_of(environment).items() if key in names}
    return Source(name, arguments)
