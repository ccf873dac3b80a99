"""`canary evaluate`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from canary.commands.common import Json, Out, Switch, flag, parse_seeds, whole
from canary.output import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play fresh episodes with the frozen policies of a run; count how often the cost exceeds the limit."""

    EXAMPLES: ClassVar[str] = """
  canary evaluate                                    the newest run, 1000 episodes per seed
  canary evaluate runs/NAME --episodes 10000         a certain run, more episodes
  canary evaluate latest --deterministic --seeds 0-3 --json -

The newest intact checkpoint is used, and every episode is played from its start to its end."""

    run: Annotated[Positional[str], arg(metavar="RUN", help_behavior_hint="(default: latest)")] = "latest"
    """The run: its path, its name below --out, or latest."""
    episodes: Annotated[str, flag("N", "1000")] = "1000"
    """Episodes per seed."""
    deterministic: Switch = False
    """Take the most likely action instead of sampling, as training does."""
    seeds: Annotated[str | None, flag("N|LIST", "all")] = None
    """Which seeds of the run: the first N, or a list such as 3,5,7 or 0-9."""
    seed: Annotated[str, flag("N", "0")] = "0"
    """Seed of the evaluation itself; another one gives other episodes."""
    out: Out = "runs"
    """Directory that holds the runs."""
    json: Json = None
    """Write the result as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Switch = False
    """Show no progress and no table."""


def evaluate(options: Evaluate) -> int:
    check_json(options.json)
    from canary import api
    from canary.experiments.progress import evaluation_bar
    from canary.experiments.summary_table import print_summary

    episodes, seed = whole("--episodes", options.episodes), whole("--seed", options.seed)
    run = api.load(options.run, out=options.out)
    seeds = run.config.training.seeds
    if options.seeds is not None:
        chosen = parse_seeds(options.seeds)
        seeds = seeds[:chosen] if isinstance(chosen, int) else chosen
    with evaluation_bar(len(seeds) * episodes, quiet=options.quiet) as report:
        summary = api.evaluate(
            run,
            episodes,
            seeds=seeds,
            deterministic=options.deterministic,
            evaluation_seed=seed,
            report=report,
        )
    if not options.quiet:
        note = f"{episodes:,} fresh episodes per seed of the policies after update {summary['updates']:,}."
        print_summary(console_for(options.json), summary | {"note": note})
    emit_json(options.json, summary)
    return 0
