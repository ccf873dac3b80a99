"""`canary evaluate`."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tyro.conf import arg

from canary.cli.common import (
    AcceptChange,
    Json,
    OneRun,
    RunsFolder,
    SomeSeeds,
    Switch,
    Trust,
    chosen_seeds,
    flag,
    opened,
    whole,
)
from canary.errors import CanaryError
from canary.terminal.console import check_json, console_for, emit_json, evaluation_bar


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play fresh episodes with the frozen policies of a run; count how often the cost exceeds the
    limit."""

    EXAMPLES: ClassVar[str] = """
  canary evaluate                                    the newest run, 1000 episodes per seed
  canary evaluate runs/NAME --episodes 10000         a certain run, more episodes
  canary evaluate latest --deterministic --seeds 0-3 --json -
  canary evaluate runs/NAME --episodes 200 --video   watch the worst episode beside the median one

The newest intact checkpoint is used, and every episode is played from its start to its end. A video shows, of all
episodes of all seeds, the one with the highest cost and the median one, with the cost spent so far against the limit."""

    run: OneRun = "latest"
    episodes: Annotated[str, flag("N", "1000")] = "1000"
    """Episodes per seed."""
    step: Annotated[str | None, flag("STEP", "the newest")] = None
    """The policies after so many steps per seed, if the run kept that state (--set
    training.keep_checkpoints=10)."""
    deterministic: Switch = False
    """Take the most likely action instead of sampling, as training does."""
    seeds: SomeSeeds = None
    seed: Annotated[str, flag("N", "0")] = "0"
    """Seed of the evaluation itself; another one gives other episodes."""
    video: Annotated[tuple[str, ...] | None, arg(metavar="[FILE]", help_behavior_hint="")] = None
    """Draw the worst and the median episode: a .gif, or an .mp4 (needs canary-rl[video]). Without
    FILE: RUN/video.gif."""
    trust: Trust = False
    accept_change: AcceptChange = False
    out: RunsFolder = "runs"
    json: Json = None
    """Write the result as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Switch = False
    """Show no progress and no table."""


def evaluate(options: Evaluate) -> int:
    check_json(options.json)
    from canary import api
    from canary.certification.certificate import changed_sentence
    from canary.terminal.tables import print_summary

    episodes, seed = whole("--episodes", options.episodes), whole("--seed", options.seed)
    video = _video_file(options)
    place = opened(options.run, options.out, trust=options.trust)
    run = api.load(place, accept_change=options.accept_change)
    known = run.config.training.seeds
    seeds = chosen_seeds(options.seeds, known) or known
    with evaluation_bar(len(seeds) * episodes, quiet=options.quiet) as (report, show):
        summary = api.evaluate(
            run,
            episodes,
            step=whole("--step", options.step),
            seeds=seeds,
            deterministic=options.deterministic,
            evaluation_seed=seed,
            report=report,
            video=None if options.video is None else _request(video, show),
        )
    if not options.quiet:
        note = f"{episodes:,} fresh episodes per seed of the policies after update {summary['updates']:,}."
        if changes := summary.get("environment_changes"):
            note += f" {changed_sentence(changes)}"
        paths = {"video": summary["video"]["path"]} if options.video is not None else {}
        print_summary(console_for(options.json), summary | {"note": note, "paths": paths})
    elif options.video is not None and options.json != "-":
        print(summary["video"]["path"])
    emit_json(options.json, summary)
    return 0


def _video_file(options: Evaluate) -> str | None:
    """The file that --video names, if it names one; what follows it may be a run by mistake."""
    named = options.video or ()
    if len(named) > 1 or any(not name.lower().endswith((".gif", ".mp4")) for name in named):
        raise CanaryError(
            f"--video takes one file that ends in .gif or .mp4, not {' '.join(named)!r}; the run "
            "goes before it: canary evaluate RUN --video FILE."
        )
    return named[0] if named else None


def _request(path: str | None, show: Any) -> Any:
    from canary.rendering.run import VideoRequest

    return VideoRequest(path=path, progress=show)
