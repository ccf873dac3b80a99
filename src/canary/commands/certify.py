"""`canary certify`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, UseAppendAction, arg

from canary.commands.common import Json, Out, Switch, flag, parse_seeds, whole
from canary.errors import CanaryError
from canary.output import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Decide from fresh episodes, at a stated confidence, whether P(episode cost > limit) <= epsilon holds."""

    EXAMPLES: ClassVar[str] = """
  canary certify                                     the newest run: SATISFIED, VIOLATED or UNDECIDED
  canary certify runs/NAME --confidence 0.99 --episodes 10000
  canary certify --shift slip=0.2,0.3,0.4            where does the limit stop to hold?
  canary certify --verify runs/NAME/certificate.json check a certificate: hashes, bounds and verdict

Episodes are played until the verdict is clear or the planned number is reached; stopping early and Ctrl-C are
both allowed for by an anytime-valid bound. Writes certificate.json and certificate.html into the run. Exit code 0
if the verdict is SATISFIED (or the certificate valid), 1 if not."""

    run: Annotated[Positional[str], arg(metavar="RUN", help_behavior_hint="(default: latest)")] = "latest"
    """The run: its path, its name below --out, or latest."""
    confidence: Annotated[str, flag("LEVEL", "0.95")] = "0.95"
    """Confidence of the verdict, over all seeds and shifts together."""
    episodes: Annotated[str | None, flag("N", "planned from epsilon")] = None
    """Most episodes per seed."""
    fixed: Switch = False
    """Play exactly that many episodes and use the exact binomial bound: no early stopping."""
    seeds: Annotated[str | None, flag("N|LIST", "all")] = None
    """Which seeds of the run: the first N, or a list such as 3,5,7 or 0-9."""
    shift: Annotated[tuple[str, ...], UseAppendAction, flag("SETTING=A,B,...")] = ()
    """Also certify with a changed environment setting, for each of the values. Repeatable."""
    deterministic: Switch = False
    """Take the most likely action instead of sampling."""
    seed: Annotated[str | None, flag("N", "fresh")] = None
    """Seed of the evaluation episodes, to repeat them."""
    verify: Annotated[str | None, flag("FILE")] = None
    """Check a certificate instead of making one."""
    out: Out = "runs"
    """Directory that holds the runs."""
    json: Json = None
    """Write the certificate as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Switch = False
    """Show no progress and no table."""


def certify(options: Certify) -> int:
    check_json(options.json)
    console = console_for(options.json)
    if options.verify is not None:
        return _verify(options, console)
    from canary import api
    from canary.experiments.certificate_table import print_certificate
    from canary.experiments.certificates import Request, certify_run

    run = api.load(options.run, out=options.out)
    request = Request(
        confidence=_level(options.confidence),
        episodes=None if options.episodes is None else whole("--episodes", options.episodes),
        early_stop=not options.fixed,
        seeds=_seeds(options.seeds, run.config.training.seeds),
        shift=options.shift,
        deterministic=options.deterministic,
        evaluation_seed=None if options.seed is None else whole("--seed", options.seed),
    )
    certificate = certify_run(run.directory, request, quiet=options.quiet)
    if not options.quiet:
        paths = [run.directory / name for name in ("certificate.json", "certificate.html")]
        print_certificate(console, certificate, paths)
    emit_json(options.json, certificate)
    return 0 if certificate["verdict"] == "SATISFIED" else 1


def _verify(options: Certify, console: Any) -> int:
    from canary.experiments.certificates import verify_file

    result = verify_file(Path(options.verify or ""))
    if not options.quiet:
        verdict = "[green]valid[/]" if result["valid"] else "[red]NOT VALID[/]"
        console.print(f"{result['path']}: {verdict}", soft_wrap=True)
        for problem in result["problems"]:
            console.print(f"  {problem}", soft_wrap=True, highlight=False)
    emit_json(options.json, result)
    return 0 if result["valid"] else 1


def _level(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CanaryError(f"--confidence takes a number between 0 and 1, not {text!r}.") from None


def _seeds(text: str | None, known: tuple[int, ...]) -> tuple[int, ...] | None:
    if text is None:
        return None
    chosen = parse_seeds(text)
    return known[:chosen] if isinstance(chosen, int) else chosen
