"""`canary certify`."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import UseAppendAction, arg

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
from canary.terminal.output import check_json, console_for, emit_json


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Decide from fresh episodes, at a stated confidence, whether the run's constraint holds."""

    EXAMPLES: ClassVar[str] = """
  canary certify                                     the newest run: SATISFIED, VIOLATED or UNDECIDED
  canary certify runs/NAME --confidence 0.99 --episodes 10000
  canary certify --shift slip=0.2,0.3,0.4            where does the limit stop to hold?
  canary certify --best                              the richest stored policy that is certified
  canary certify --sign ~/.ssh/id_ed25519            sign it with a key of yours
  canary certify --verify certificate.json           is it consistent in itself?
  canary certify runs/NAME --verify certificate.json --replay 0.1 --key issuer.pub

With --best, the stored states of all seeds (--set training.keep_checkpoints=10 keeps some) play episodes of their own. Those
that keep the limit there are ranked by return, and the first --tries of them certified in turn on fresh episodes at a
confidence that pays for having looked at several.

Episodes are played until the verdict is clear or the planned number is reached; stopping early and Ctrl-C are
both allowed for by an anytime-valid bound. Writes certificate.json and certificate.html into the run; earlier ones
are kept under names of their own. Exit code 0 if the verdict is SATISFIED (or the certificate valid), 1 if not.

--verify says which of three things it has shown: the certificate is consistent in itself; it belongs to the policies
of RUN (or of the run it lies in); its episodes, all or a random share of them, were played again with the same costs."""

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
    """With --best: candidates that are certified at most, until one is SATISFIED."""
    shift: Annotated[tuple[str, ...], UseAppendAction, flag("SETTING=A,B,...")] = ()
    """Also certify with a changed environment setting, for each of the values. Repeatable."""
    largest_step_cost: Annotated[str | None, flag("COST", "the environment's")] = None
    """The largest cost a step can have, if the environment does not state it: bounds on means need
    it."""
    deterministic: Switch = False
    """Take the most likely action instead of sampling."""
    seed: Annotated[str | None, flag("N", "fresh")] = None
    """Seed of the evaluation episodes, to repeat them."""
    verify: Annotated[str | None, flag("FILE")] = None
    """Check a certificate (its .json, its .html or their directory) instead of making one."""
    replay: Annotated[tuple[str, ...] | None, arg(metavar="[SHARE]", help_behavior_hint="")] = None
    """With --verify: play its episodes again, all of them or a random share such as 0.1."""
    key: Annotated[str | None, flag("PUB")] = None
    """With --verify: the public key (.pub or .pem) that it must be signed with."""
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
        return _verify(options, console)
    for name in ("replay", "key"):
        if getattr(options, name) is not None:
            raise CanaryError(
                f"--{name} belongs to --verify FILE, which says what shall be checked."
            )
    if options.tries is not None and not options.best:
        raise CanaryError(
            "--tries belongs to --best, which looks for a policy that can be certified."
        )
    from canary import api

    place = opened(options.run or "latest", options.out, trust=options.trust)
    run = api.load(place, accept_change=options.accept_change)
    return _best(options, run, console) if options.best else _certify(options, run, console)


def _certify(options: Certify, run: Any, console: Any) -> int:
    from canary.certification.signature import load_private_key
    from canary.terminal.certificate_table import print_certificate

    certificate = run.certify(
        confidence=_level(options.confidence),
        episodes=_whole(options, "episodes"),
        early_stop=not options.fixed,
        step=_whole(options, "step"),
        seeds=chosen_seeds(options.seeds, run.config.training.seeds),
        shift=options.shift,
        largest_step_cost=_cost(options.largest_step_cost),
        deterministic=options.deterministic,
        evaluation_seed=_whole(options, "seed"),
        sign=None
        if options.sign is None
        else load_private_key(_key_file(options.sign), options.sign),
        quiet=options.quiet,
    )
    if not options.quiet:
        paths = [run.directory / name for name in ("certificate.json", "certificate.html")]
        print_certificate(console, certificate, paths)
    emit_json(options.json, certificate)
    return 0 if certificate["verdict"] == "SATISFIED" else 1


def _best(options: Certify, run: Any, console: Any) -> int:
    from canary.terminal.certificate_table import print_best

    for name in ("step", "fixed", "shift", "deterministic", "seed", "sign"):
        if getattr(options, name):
            raise CanaryError(
                "--best chooses the policy and how it is certified; leave out "
                f"--{name.replace('_', '-')}."
            )
    tries = _whole(options, "tries")
    found = run.best(
        confidence=_level(options.confidence),
        tries=3 if tries is None else tries,
        episodes=_whole(options, "episodes"),
        seeds=chosen_seeds(options.seeds, run.config.training.seeds),
        largest_step_cost=_cost(options.largest_step_cost),
        quiet=options.quiet,
    )
    if not options.quiet:
        print_best(console, found.to_dict())
    emit_json(options.json, found.to_dict())
    return 0 if found.certified else 1


def _whole(options: Certify, name: str) -> int | None:
    text = getattr(options, name)
    return None if text is None else whole(f"--{name}", text)


def _verify(options: Certify, console: Any) -> int:
    from canary.certification.check import verify_file
    from canary.certification.on_disk import read, run_around
    from canary.certification.signature import load_public_key
    from canary.runs.directory import find_run
    from canary.terminal.bars import evaluation_bar
    from canary.terminal.certificate_table import print_verification

    share = _share(options.replay)
    for name in ("episodes", "seeds", "seed", "sign", "step", "tries", "largest_step_cost"):
        if getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise CanaryError(f"--verify checks a certificate as it is; leave out --{option}.")
    path = Path(options.verify or "")
    key = None if options.key is None else load_public_key(_key_file(options.key), options.key)
    around, _ = run_around(path)
    if options.run or around is not None:
        opened(options.run or str(around), options.out, trust=options.trust)
    run = find_run(options.run, Path(options.out)) if options.run else None
    episodes = _listed(read(path)["certificate"]) if share else 0
    with evaluation_bar(round(share * episodes), quiet=options.quiet or not share) as (report, _):
        result = verify_file(path, run=run, replay=share, key=key, report=report)
    if not options.quiet:
        print_verification(console, result)
    emit_json(options.json, result)
    return 0 if result["valid"] else 1


def _listed(certificate: dict[str, Any]) -> int:
    """How many episodes a certificate lists, for the bar; a damaged one will be told of soon
    enough."""
    try:
        return sum(
            int(pair[1])
            for result in certificate["results"]
            for pair in result["evidence"]["costs"]
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return 0


def _share(texts: tuple[str, ...] | None) -> float:
    """What --replay asks for: all without a number, nothing without the option."""
    if texts is None:
        return 0.0
    try:
        share = float(texts[0]) if texts else 1.0
    except ValueError:
        share = 0.0
    if len(texts) > 1 or not 0 < share <= 1:
        raise CanaryError(
            f"--replay takes a share above 0 and at most 1, such as 0.1, not {' '.join(texts)!r}."
        )
    return share


def _key_file(name: str) -> bytes:
    from canary.runs.files import read_bytes

    try:
        return read_bytes(Path(name).expanduser(), 1 << 20)
    except (OSError, ValueError) as error:
        raise CanaryError(
            f"There is no key {name!r} ({getattr(error, 'strerror', None) or error})."
        ) from None


def _level(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CanaryError(f"--confidence takes a number between 0 and 1, not {text!r}.") from None


def _cost(text: str | None) -> float | None:
    try:
        cost = None if text is None else float(text)
    except ValueError:
        cost = math.nan
    if cost is not None and not 0 <= cost < math.inf:
        raise CanaryError(
            f"--largest-step-cost takes a finite number that is not negative, not {text!r}."
        )
    return cost
