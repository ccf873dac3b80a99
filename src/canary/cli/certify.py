"""`canary certify`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from canary.cli import options
from canary.terminal.console import console_for, emit_json
from canary.values import Count, Positive, Whole

if TYPE_CHECKING:
    from canary.api import Run

CHOOSING = ("step", "fixed", "shift", "deterministic", "seed", "sign")
MAKING = ("best", "tries", "episodes", "seeds", "largest_step_cost", *CHOOSING)


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Decide from fresh episodes, at a stated confidence, whether the run's constraint holds."""

    EXAMPLES: ClassVar[str] = """
  canary certify                                     the newest run: SATISFIED, VIOLATED or UNDECIDED
  canary certify runs/NAME --confidence 0.99 --episodes 10000
  canary certify --shift slip=0.2,0.3,0.4            at which slip does the limit fail?
  canary certify --best                              the stored policy with the highest certified return
  canary certify --sign ~/.ssh/id_ed25519            sign it with your key
  canary certify --verify certificate.json           do its bounds follow from its costs?
  canary certify runs/NAME --verify certificate.json --replay --key issuer.pub

--best plays episodes with every stored policy (--set training.keep_checkpoints=10 stores some) and ranks those within the
limit by return. It certifies the first --tries of them in turn on fresh episodes, at a confidence corrected for several tries.

Episodes are played until the verdict is clear or the planned number is reached. The bound is valid at any time, so early
stopping and Ctrl-C are allowed. Writes certificate.json and certificate.html into the run and renames earlier ones. Exit
code 0 if the verdict is SATISFIED (or the certificate valid), else 1.

--verify issues the certificate again from its costs and compares it with the policies of RUN (or of the run that contains
it). --replay also plays all its episodes again."""

    run: options.OneRun = ""
    confidence: Annotated[float, options.flag("LEVEL", "0.95")] = 0.95
    """Confidence of the verdict, over all seeds and shifts together."""
    episodes: Annotated[Count | None, options.flag("N", "planned")] = None
    """Largest number of episodes per seed."""
    fixed: options.Switch = False
    """Play exactly that many episodes, without early stopping; the bound on P is exact binomial."""
    seeds: options.ChosenSeeds = None
    step: options.Step = None
    best: options.Switch = False
    """Find and certify the stored policy with the highest return: one seed, one step."""
    tries: Annotated[Count, options.flag("N", "3")] = 3
    """With --best: certify at most this many policies."""
    shift: Annotated[options.Repeated, options.flag("SETTING=A,B,...")] = ()
    """Also certify with each of these values of an environment setting. Repeatable."""
    largest_step_cost: Annotated[Positive | None, options.flag("COST", "the environment's")] = None
    """The largest cost of a step, if the environment does not state it: bounds on means need it."""
    deterministic: options.Switch = False
    """Take the most likely action instead of sampling."""
    seed: Annotated[Whole | None, options.flag("N", "fresh")] = None
    """Seed of the evaluation episodes, to repeat them."""
    verify: Annotated[str | None, options.flag("FILE")] = None
    """Check a certificate (its .json, its .html or their directory) instead of making one."""
    replay: options.Switch = False
    """With --verify: play all its episodes again."""
    key: Annotated[str | None, options.flag("PUB")] = None
    """With --verify: the public key (.pub or .pem) that must have signed it."""
    sign: Annotated[str | None, options.flag("KEY")] = None
    """Sign the certificate with this Ed25519 private key, for instance from ssh-keygen (needs
    canary-rl[sign])."""
    trust: options.Trust = False
    accept_change: options.AcceptChange = False
    out: options.RunsFolder = "runs"
    json: options.Json = None
    quiet: options.Quiet = False

    def __call__(self) -> int:
        if self.verify is not None:
            options.refuse(self, MAKING, "--verify only checks a certificate")
            return self._verify(Path(self.verify))
        options.refuse(self, ("replay", "key"), "it works only with --verify FILE")
        from canary import api

        if self.best:
            options.refuse(self, CHOOSING, "--best chooses the policy and how it is certified")
        else:
            options.refuse(self, ("tries",), "it works only with --best")
        place = options.opened(self.run or "latest", self.out, trust=self.trust)
        run = api.load(place, accept_change=self.accept_change)
        return self._best(run) if self.best else self._certify(run)

    def _shared(self) -> dict[str, Any]:
        """What a certificate and a search have in common."""
        names = ("confidence", "episodes", "seeds", "largest_step_cost", "accept_change", "quiet")
        return {name: getattr(self, name) for name in names}

    def _certify(self, run: "Run") -> int:
        from canary.terminal.certificate_table import print_certificate

        certificate = run.certify(
            **self._shared(),
            early_stop=not self.fixed,
            step=self.step,
            shift=self.shift,
            deterministic=self.deterministic,
            evaluation_seed=self.seed,
            sign=self.sign,
        )
        if not self.quiet:
            paths = [run.directory / name for name in ("certificate.json", "certificate.html")]
            print_certificate(console_for(self.json), certificate, paths)
        emit_json(self.json, certificate)
        return 0 if certificate["verdict"] == "SATISFIED" else 1

    def _best(self, run: "Run") -> int:
        from canary.terminal.certificate_table import print_best

        best = run.best(**self._shared(), tries=self.tries)
        if not self.quiet:
            print_best(console_for(self.json), best.to_dict())
        emit_json(self.json, best.to_dict())
        return 0 if best.certified else 1

    def _verify(self, path: Path) -> int:
        from canary.certification.verify import run_around, verify_file
        from canary.terminal.certificate_table import print_verification

        key = None
        if self.key is not None:
            from canary.certification.signature import public_key  # needs cryptography

            key = public_key(self.key)
        name = self.run or str(run_around(path) or "")
        run = options.opened(name, self.out, trust=self.trust) if name else None
        result = verify_file(path, run=run, replay=self.replay, key=key, quiet=self.quiet)
        if not self.quiet:
            print_verification(console_for(self.json), result)
        emit_json(self.json, result)
        return 0 if result["valid"] else 1
