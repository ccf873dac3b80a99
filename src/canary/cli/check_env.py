"""`canary check-env`."""

import math
import time
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, UseAppendAction, arg

from canary.cli.common import Json, Switch, flag, said_constraint, whole
from canary.errors import CanaryError
from canary.terminal.console import check_json, console_for, counting_bar, emit_json

DEFAULT_EPSILON = 0.05
EPISODES, SECONDS = 128, 40.0  # of each policy, and for all of them, if the user says nothing


@dataclass(frozen=True, kw_only=True)
class CheckEnv:
    """Check an environment: shapes, types, randomness, ends and costs; and which limits are
    interesting."""

    EXAMPLES: ClassVar[str] = """
  canary check-env shop:Shop                         an environment of yours, in shop.py
  canary check-env shop:Shop --set env.price=2 --limit 6 --epsilon 0.05
  canary check-env shop:Shop --constraint mean --limit 3
  canary check-env gymnasium:Pendulum-v1 --cost shop:speed
  canary check-env gymnasium:shop:Tank --set env.horizon=200     a Gymnasium class of yours, which has no spec
  canary check-env IcyLake --json -

It traces the environment, plays random episodes to their end, and plays them once more to see that the same seeds give the
same numbers. Then constant actions (each one, or low, middle and high) show what can be had without learning, and which limits
are interesting. Every training begins with the fast part of it. Exit code 0 if nothing is wrong, 1 if something is."""

    env: Annotated[Positional[str], arg(metavar="ENV", help_behavior_hint="")]
    """One of ours, package.module:Factory, gymnasium:ID, gymnax:ID, brax:NAME, crax:NAME or
    playground:NAME."""
    set: Annotated[tuple[str, ...], UseAppendAction, flag("env.NAME=VALUE")] = ()
    """An argument of the environment. Repeatable."""
    cost: Annotated[str | None, flag("WHERE")] = None
    """Where the cost of another package's environment is: info:KEY, safety-gymnasium, or
    package.module:function."""
    constraint: Annotated[
        str | None, flag("chance|mean|cvar", "the environment's own, or chance")
    ] = None
    """What is limited: P(cost > limit), the mean cost, or the mean cost of the worst share epsilon
    of the episodes."""
    limit: Annotated[str | None, flag("COST", "the environment's own")] = None
    """A cost limit to say something about."""
    epsilon: Annotated[str | None, flag("PROBABILITY", "the environment's own, or 0.05")] = None
    """Largest allowed probability of a violation (chance), or the share of episodes that count as
    the worst (cvar)."""
    episodes: Annotated[str | None, flag("N", "128, or as many as a minute allows")] = None
    """Episodes of random actions, and of every constant action."""
    json: Json = None
    """Write the report as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Switch = False
    """Print nothing."""


def check(options: CheckEnv) -> int:
    check_json(options.json)
    from canary.checking.check import full_check
    from canary.environments.protocol import close
    from canary.runs.devices import prepare_devices
    from canary.terminal.tables import print_check

    prepare_devices()
    console = console_for(options.json)
    episodes = whole("--episodes", options.episodes)
    until = math.inf
    if episodes == 0:
        raise CanaryError("--episodes takes a positive whole number, not 0.")
    environment = _environment(options)
    constraint = _constraint(options, environment)
    try:
        with counting_bar("checking", quiet=options.quiet) as show:

            def progress(done: int, total: int, what: str) -> bool:
                nonlocal until
                show(done, total, what)
                if done == 1 and episodes is None:  # random actions were played
                    until = time.monotonic() + SECONDS
                return time.monotonic() < until

            report = full_check(
                environment, constraint=constraint, episodes=episodes or EPISODES, progress=progress
            )
    finally:
        close(environment)
    if not options.quiet:
        print_check(console, report.to_dict(), constraint)
    emit_json(options.json, report.to_dict())
    return 0 if report.ok else 1


def _constraint(options: CheckEnv, environment: Any) -> Any:
    """What was said, completed by the environment's own constraint and checked as `train` does;
    None without a limit."""
    from canary.config.run_config import complete
    from canary.environments.protocol import default_constraint

    own = default_constraint(environment)
    said = said_constraint(options.constraint, options.limit, options.epsilon)
    if isinstance(own, list | tuple) or any(isinstance(each, tuple) for each in said.values()):
        return complete(said, own, options.env)  # several costs
    kind, limit, epsilon = (
        said["kind"] or getattr(own, "kind", "chance"),
        said["limit"],
        said["epsilon"],
    )
    if epsilon is None and kind != "mean":
        epsilon = getattr(own, "epsilon", DEFAULT_EPSILON)
    known = getattr(own, "limit", None) if limit is None else limit
    parts = {"kind": kind, "limit": 1.0 if known is None else known, "epsilon": epsilon}
    constraint = complete(parts, None, options.env)
    return None if known is None else constraint


def _environment(options: CheckEnv) -> Any:
    from canary.config.config import changed_environment, make_environment

    pairs = []
    for item in options.set:
        path, equals, text = item.partition("=")
        if not equals or not path.strip().startswith("env."):
            raise CanaryError(
                f"--set expects env.NAME=VALUE here, for example env.horizon=100, not {item!r}."
            )
        pairs.append((path.strip(), text.strip()))
    environment, _, rest = make_environment(options.env, pairs, options.cost, check=False)
    changes = {path.removeprefix("env."): value for path, value in rest}
    return changed_environment(environment, changes) if changes else environment
