"""`canary evaluate` and `canary export`: the trained policies of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from canary.cli import options
from canary.errors import CanaryError
from canary.terminal.console import console_for, emit_json, evaluation_bar
from canary.values import Count, Whole


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play fresh episodes with the frozen policies of a run and count violations of the limit."""

    EXAMPLES: ClassVar[str] = """
  canary evaluate                                    the newest run, 1000 episodes per seed
  canary evaluate runs/NAME --episodes 10000         another run, more episodes
  canary evaluate latest --deterministic --seeds 0-3 --json -
  canary evaluate runs/NAME --episodes 200 --video   watch the worst episode beside the median one

Plays whole episodes with the newest intact checkpoint. A video shows the episode with the highest cost beside the median
one, over all seeds, with the spent cost against the limit."""

    run: options.OneRun = "latest"
    episodes: Annotated[Count, options.flag("N", "1000")] = 1000
    """Episodes per seed."""
    step: options.Step = None
    deterministic: options.Switch = False
    """Take the most likely action. Training and the default sample."""
    seeds: options.ChosenSeeds = None
    seed: Annotated[Whole, options.flag("N", "0")] = 0
    """Seed of the evaluation; another one gives other episodes."""
    video: Annotated[tuple[str, ...] | None, options.flag("[FILE]")] = None
    """Draw the worst and the median episode: a .gif, or an .mp4 (needs canary-rl[video]). Without
    FILE: RUN/video.gif."""
    trust: options.Trust = False
    accept_change: options.AcceptChange = False
    out: options.RunsFolder = "runs"
    json: options.Json = None
    quiet: options.Quiet = False

    def __call__(self) -> int:
        from canary import api
        from canary.certification.certificate import changed_sentence
        from canary.rendering.run import VideoRequest
        from canary.terminal.tables import print_summary

        path = self._video_path()
        place = options.opened(self.run, self.out, trust=self.trust)
        run = api.load(place, accept_change=self.accept_change)
        seeds = api.chosen_seeds(run, self.seeds)
        with evaluation_bar(len(seeds) * self.episodes, quiet=self.quiet) as (report, show):
            summary = api.evaluate(
                run,
                self.episodes,
                step=self.step,
                seeds=seeds,
                deterministic=self.deterministic,
                evaluation_seed=self.seed,
                report=report,
                video=None if self.video is None else VideoRequest(path=path, progress=show),
            )
        video = None if self.video is None else summary["video"]["path"]
        if not self.quiet:
            note = (
                f"{self.episodes:,} fresh episodes per seed of the policies after update "
                f"{summary['updates']:,}."
            )
            if changes := summary.get("environment_changes"):
                note += f" {changed_sentence(changes)}"
            paths = {"video": video} if video else {}
            print_summary(console_for(self.json), summary | {"note": note, "paths": paths})
        elif video and self.json != "-":
            print(video)
        emit_json(self.json, summary)
        return 0

    def _video_path(self) -> str | None:
        """The file that --video names, if any. A run after --video is a mistake."""
        names = self.video or ()
        if len(names) > 1 or not all(name.lower().endswith((".gif", ".mp4")) for name in names):
            raise CanaryError(
                f"--video takes one file that ends in .gif or .mp4, not {' '.join(names)!r}; the "
                "run goes before it: canary evaluate RUN --video FILE."
            )
        return names[0] if names else None


@dataclass(frozen=True, kw_only=True)
class Export:
    """Export a trained policy with its normaliser and cost account to one file."""

    EXAMPLES: ClassVar[str] = """
  canary export                                      the newest run, its first seed, as ONNX
  canary export runs/NAME --format numpy --seed 2    for a machine with numpy only
  canary export --file policy.onnx

A policy depends on the cost spent so far; docs/export.md shows how to serve one."""

    run: options.OneRun = "latest"
    format: Annotated[str, options.flag("onnx|numpy", "onnx")] = "onnx"
    """File format."""
    seed: Annotated[Whole | None, options.flag("N", "the run's first")] = None
    """Seed of the policy."""
    step: options.Step = None
    file: Annotated[str | None, options.flag("FILE", "in RUN/exports")] = None
    """Where to write it."""
    trust: options.Trust = False
    out: options.RunsFolder = "runs"
    json: options.Json = None
    quiet: options.Quiet = False

    def __call__(self) -> int:
        from canary.export.run import export_run

        record = export_run(
            options.opened(self.run, self.out, trust=self.trust),
            format=self.format,
            seed=self.seed,
            step=self.step,
            out=None if self.file is None else Path(self.file),
        )
        if not self.quiet:
            console_for(self.json).say(
                f"{record['path']}\n{record['format']}, {record['bytes']:,} bytes; differs from "
                f"JAX by at most {record['max_abs_difference']:.1e} on "
                f"{record['checked_inputs']} inputs"
            )
        emit_json(self.json, record)
        return 0
