"""`canary certify`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import UseAppendAction

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
    number,
    opened,
    whole,
)
from canary.errors import CanaryError
from canary.terminal.console import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Decide from fresh episodes, at a stated confidence, whether the run's constraint holds."""

    EXAMPLES: ClassVar[str] = """
  canary certify                                     the newest run: SATISFIED, VIOLATED or UNDECIDED
  canary certify runs/NAME --confidence 0.99 --episodes 10000
  canary certify --shift slip=0.2,0.3,0.4            at which slip does the limit fail?
  canary certify --best                              the stored policy with the highest certified return
  canary certify --sign ~/.ssh/id_ed25519            sign it with a key of yours
  canary certify --verify certificate.json           do its bounds follow from its costs?
  canary certify runs/NAME --verify certificate.json --replay --key issuer.pub

With --best, the stored states of all seeds (--set training.keep_checkpoints=10 keeps some) play episodes of their own. Those
within the limit there are ranked by return, and the first --tries of them are certified in turn on fresh episodes, at a
confidence that is corrected for trying several.

Episodes are played until the verdict is clear or the planned number is reached; early stopping and Ctrl-C are
both covered by an anytime-valid bound. Writes certificate.json and certificate.html into the run; earlier ones
are kept under names of their own. Exit code 0 if the verdict is SATISFIED (or the certificate valid), 1 if not.

--verify issues the certificate again from the costs that it lists, compares it with the policies of RUN (or of the run
it lies in), and with --replay plays all its episodes again."""

    run: OneRun = ""
    confidence: Annotated[str, flag("LEVEL", "0.95")] = "0.95"
    """Confidence of the verdict, over all seeds and shifts together."""
    episodes: Annotated[str | None, flag("N", "planned")] = None
    """Most episodes per seed."""
    fixed: Switch = False
    """Play exactly that many episodes, without early stopping: the bound on P is then the exact
    binomial one."""
    seeds: SomeSeeds = None
    step: Annotated[str | None, flag("STEP", "the newest")] = None
    """The policies after so many steps per seed, if the run kept that state."""
    best: Switch = False
    """Find and certify the stored policy with the highest return: one seed, one step."""
    tries: Annotated[str | None, flag("N", "3")] = None
    """With --best: the most policies that are certified until one is SATISFIED."""
    shift: Annotated[tuple[str, ...], UseAppendAction, flag("SETTING=A,B,...")] = ()
    """Also certify with a changed environment setting, for each of the values. Repeatable."""
    largest_step_cost: Annotated[str | None, flag("COST", "the environment's")] = None
    """The largest cost of a step, if the environment does not state it: bounds on means need it."""
    deterministic: Switch = False
    """Take the most likely action instead of sampling."""
    seed: Annotated[str | None, flag("N", "fresh")] = None
    """Seed of the evaluation episodes, to repeat them."""
    verify: Annotated[str | None, flag("FILE")] = None
    """Check a certificate (its .json, its .html or their directory) instead of making one."""
    replay: Switch = False
    """With --verify: play all its episodes again."""
    key: Annotated[str | None, flag("PUB")] = None
    """With --verify: the public key (.pub or .pem) that must have signed it."""
    sign: Annotated[str | None, flag("KEY")] = None
    """Sign the certificate with this Ed25519 private key, as ssh-keygen makes it (needs
    canary-rl[sign])."""
    trust: Trust = False
    accept_change: AcceptChange = False
    out: RunsFolder = "runs"
    json: Json = None
    """Write the certificate as JSON to a file, or to standard output (-) and nothing else there."""
    quiet: Switch = False
    """Show no progress and no table."""


def certify(options: Certify) -> int:
    check_json(options.json)
    console = console_for(options.json)
    if options.verify is not None:
        _refuse(options, "--verify checks a certificate as it is", MAKING)
        return _verify(options, console)
    _refuse(options, "it belongs to --verify FILE", ("replay", "key"))
    if options.best:
        _refuse(options, "--best chooses the policy and how it is certified", CHOOSING)
    else:
        _refuse(options, "it belongs to --best", ("tries",))
    from canary import api

    place = opened(options.run or "latest", options.out, trust=options.trust)
    run = api.load(place, accept_change=options.accept_change)
    return _best(options, run, console) if options.best else _certify(options, run, console)


CHOOSING = ("step", "fixed", "shift", "deterministic", "seed", "sign")
MAKING = ("best", "tries", "episodes", "seeds", "largest_step_cost", *CHOOSING)


def _refuse(options: Certify, why: str, names: tuple[str, ...]) -> None:
    """A sentence about the first of these options that was given."""
    for name in names:
        if getattr(options, name):
            raise CanaryError(f"Leave out --{name.replace('_', '-')}: {why}.")


def _shared(options: Certify, run: Any) -> dict[str, Any]:
    """What a certificate and a search have in common."""
    return {
        "confidence": number("--confidence", options.confidence),
        "episodes": whole("--episodes", options.episodes),
        "seeds": chosen_seeds(options.seeds, run.config.training.seeds),
        "largest_step_cost": number("--largest-step-cost", options.largest_step_cost),
        "accept_change": options.accept_change,
        "quiet": options.quiet,
    }


def _certify(options: Certify, run: Any, console: Any) -> int:
    from canary.terminal.certificate_table import print_certificate

    certificate = run.certify(
        **_shared(options, run),
        early_stop=not options.fixed,
        step=whole("--step", options.step),
        shift=options.shift,
        deterministic=options.deterministic,
        evaluation_seed=whole("--seed", options.seed),
        sign=options.sign,
    )
    if not options.quiet:
        paths = [run.directory / name for name in ("certificate.json", "certificate.html")]
        print_certificate(console, certificate, paths)
    emit_json(options.json, certificate)
    return 0 if certificate["verdict"] == "SATISFIED" else 1


def _best(options: Certify, run: Any, console: Any) -> int:
    from canary.terminal.certificate_table import print_best

    found = run.best(**_shared(options, run), tries=whole("--tries", options.tries or "3"))
    if not options.quiet:
        print_best(console, found.to_dict())
    emit_json(options.json, found.to_dict())
    return 0 if found.certified else 1


def _verify(options: Certify, console: Any) -> int:
    from canary.certification.verify import run_around, verify_file
    from canary.terminal.certificate_table import print_verification

    path, key = Path(options.verify or ""), None
    if options.key is not None:
        from canary.certification.signature import public_key  # needs cryptography

        key = public_key(options.key)
    name = options.run or str(run_around(path) or "")
    run = opened(name, options.out, trust=options.trust) if name else None
    result = verify_file(path, run=run, replay=options.replay, key=key, quiet=options.quiet)
    if not options.quiet:
        print_verification(console, result)
    emit_json(options.json, result)
    return 0 if result["valid"] else 1
