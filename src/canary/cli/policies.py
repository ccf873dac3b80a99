"""`canary evaluate`, `canary certify` and `canary export`: the trained policies of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from canary.cli import options
from canary.errors import CanaryError
from canary.terminal.console import evaluation_bar
from canary.values import Count, Positive, Whole

# Options that --best refuses, and options that --verify refuses
CHOOSING = ("step", "fixed", "shift", "deterministic", "seed", "sign")
MAKING = ("best", "tries", "episodes", "seeds", "largest_step_cost", *CHOOSING)


@dataclass(frozen=True, kw_only=True)
class Evaluate(options.OfPolicies):
    """Play fresh episodes with the frozen policies of a run and count violations of the limit."""

    EXAMPLES: ClassVar[str] = """
  canary evaluate                                    the newest run, 1000 episodes per seed
  canary evaluate runs/NAME --episodes 10000         another run, more episodes
  canary evaluate latest --deterministic --seeds 0-3 --json -
  canary evaluate runs/NAME --episodes 200 --video   watch the worst episode beside the median one

Plays whole episodes with the newest intact checkpoint. A video shows the episodes with the highest
and the median cost, over all seeds, and the cost spent so far against the limit."""

    episodes: Annotated[Count, options.flag("N", "1000")] = 1000
    """Episodes per seed."""
    seed: Annotated[Whole, options.flag("N", "0")] = 0
    """Seed of the evaluation; another one gives other episodes."""
    video: Annotated[tuple[str, ...] | None, options.flag("[FILE]")] = None
    """Draw the worst and the median episode: a .gif, or an .mp4 (needs canary-rl[video]). Without
    FILE: RUN/video.gif."""

    def __call__(self) -> int:
        from canary import api
        from canary.certification.certificate import changed_sentence
        from canary.terminal.tables import print_summary

        if len(self.video or ()) > 1:
            raise CanaryError(
                "--video takes one file; the run goes before it: canary evaluate RUN --video FILE."
            )
        run = self.load()
        count = len(api.chosen_seeds(run, self.seeds)) * self.episodes
        with evaluation_bar(count, quiet=self.quiet) as (report, show):
            video = None
            if self.video is not None:
                from canary.rendering.run import VideoRequest  # needs matplotlib

                video = VideoRequest(path=next(iter(self.video), None), progress=show)
            how = options.arguments(self, api.evaluate) | {"video": video, "report": report}
            summary = api.evaluate(run, evaluation_seed=self.seed, **how)
        note = (
            f"{self.episodes:,} fresh episodes per seed of the policies after update "
            f"{summary['updates']:,}."
        )
        if changes := summary.get("environment_changes"):
            note += f" {changed_sentence(changes)}"
        paths = {} if video is None else {"video": summary["video"]["path"]}
        if paths and self.quiet and self.json != "-":
            print(paths["video"])
        shown = summary | {"note": note, "paths": paths}
        self.show(summary, lambda console, _: print_summary(console, shown))
        return 0


@dataclass(frozen=True, kw_only=True)
class Certify(options.OfPolicies):
    """Decide from fresh episodes, at a stated confidence, whether the run's constraint holds."""

    EXAMPLES: ClassVar[str] = """
  canary certify                                     the newest run: SATISFIED, VIOLATED or UNDECIDED
  canary certify runs/NAME --confidence 0.99 --episodes 10000
  canary certify --shift slip=0.2,0.3,0.4            at which slip does the limit fail?
  canary certify --best                              the stored policy with the highest certified return
  canary certify --sign ~/.ssh/id_ed25519            sign it with your key
  canary certify --verify certificate.json           do its bounds follow from the costs that it lists?
  canary certify runs/NAME --verify certificate.json --key issuer.pub      play all its episodes again

--best plays episodes with every stored policy (--set training.keep_checkpoints=10 stores some) and ranks those within the
limit by return. It certifies the first --tries of them in turn on fresh episodes, at a confidence corrected for several tries.

Plays episodes until the verdict is clear or the planned number is reached. The bound is valid at any time, so early
stopping and Ctrl-C are allowed. Writes certificate.json and certificate.html into the run and renames earlier ones. Exit
code 0: the verdict is SATISFIED (with --verify: the certificate is valid); else 1."""

    confidence: Annotated[float, options.flag("LEVEL", "0.95")] = 0.95
    """Confidence of the verdict, over all seeds and shifts together."""
    episodes: Annotated[Count | None, options.flag("N", "planned")] = None
    """Largest number of episodes per seed."""
    fixed: options.Switch = False
    """Play exactly that many episodes, without early stopping; the bound on P is exact (binomial)."""
    best: options.Switch = False
    """Find and certify the stored policy with the highest return: one seed, one step."""
    tries: Annotated[Count, options.flag("N", "3")] = 3
    """With --best: certify at most this many policies."""
    shift: Annotated[options.Repeated, options.flag("SETTING=A,B,...")] = ()
    """Also certify with each of these values of an environment setting. Repeatable."""
    largest_step_cost: Annotated[Positive | None, options.flag("COST", "the environment's")] = None
    """Largest cost of a step, if the environment does not state it. Bounds on means need it."""
    seed: Annotated[Whole | None, options.flag("N", "fresh")] = None
    """Seed of the evaluation episodes; the same seed repeats them."""
    verify: Annotated[str | None, options.flag("FILE")] = None
    """Check a certificate (certificate.json or its directory) instead of making one: compute its
    bounds again from its costs or, if RUN is given, play all its episodes again."""
    key: Annotated[str | None, options.flag("PUB")] = None
    """With --verify: the public key (.pub or .pem) that must have signed it."""
    sign: Annotated[str | None, options.flag("KEY")] = None
    """Sign the certificate with this Ed25519 private key, for instance from ssh-keygen (needs
    canary-rl[sign])."""

    def __call__(self) -> int:
        if self.verify is not None:
            options.refuse(self, MAKING, "--verify only checks a certificate")
            return self._verify(Path(self.verify))
        options.refuse(self, ("key",), "it works only with --verify FILE")
        from canary import api
        from canary.terminal.certificate_table import print_best, print_certificate

        if self.best:
            options.refuse(self, CHOOSING, "--best chooses the policy and how it is certified")
            best = self.load().best(**options.arguments(self, api.Run.best))
            self.show(best, print_best)
            return 0 if best["certified"] else 1
        options.refuse(self, ("tries",), "it works only with --best")
        run, how = self.load(), options.arguments(self, api.certify)
        certificate = run.certify(**how, early_stop=not self.fixed, evaluation_seed=self.seed)
        paths = [run.directory / name for name in ("certificate.json", "certificate.html")]
        self.show(certificate, print_certificate, paths)
        return 0 if certificate["verdict"] == "SATISFIED" else 1

    def _verify(self, path: Path) -> int:
        from canary.certification.verify import verify_file
        from canary.terminal.certificate_table import print_verification

        key = None
        if self.key is not None:
            from canary.certification.signature import read_key  # needs cryptography

            key = read_key(self.key, "public")
        run = self.opened() if self.run else None
        result = verify_file(path, run=run, key=key, quiet=self.quiet)
        self.show(result, print_verification)
        return 0 if result["valid"] else 1


@dataclass(frozen=True, kw_only=True)
class Export(options.OfRun):
    """Export a trained policy with its normaliser and cost account to one file."""

    EXAMPLES: ClassVar[str] = """
  canary export                                      the newest run, its first seed, as ONNX
  canary export runs/NAME --format numpy --seed 2    for a machine with numpy only
  canary export --file policy.onnx

A policy depends on the cost spent so far; docs/export.md shows how to serve one."""

    format: Annotated[str, options.flag("onnx|numpy", "onnx")] = "onnx"
    """File format."""
    seed: Annotated[Whole | None, options.flag("N", "the run's first")] = None
    """Seed of the policy."""
    file: Annotated[str | None, options.flag("FILE", "in RUN/exports")] = None
    """File to write."""

    def __call__(self) -> int:
        from canary.exporting.run import export_run

        record = export_run(
            self.opened(),
            format=self.format,
            seed=self.seed,
            step=self.step,
            out=None if self.file is None else Path(self.file),
        )
        text = (
            f"{record['path']}\n{record['format']}, {record['bytes']:,} bytes; differs from JAX by "
            f"at most {record['max_abs_difference']:.1e} on {record['checked_inputs']} inputs"
        )
        self.show(record, lambda console, _: console.say(text))
        return 0
