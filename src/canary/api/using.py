"""What can be done with a trained run. Each function takes a run or its path, and is a method of
`Run` as well."""

import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.reporting.records import EvaluationSummary, ExportRecord
from canary.reporting.summary import EVALUATION, summarise_evaluation
from canary.runs import files
from canary.runs.directory import find_run
from canary.runs.environment import open_config
from canary.runs.policies import EvaluationPlan, FrozenPolicies, load_policies, play

if TYPE_CHECKING:
    from canary.api.face import Run
    from canary.certification.best import Best
    from canary.rendering.episode import Drawing
    from canary.rendering.run import VideoRequest


def evaluate(
    run: "Run | str | Path",
    episodes: int = 1000,
    *,
    step: int | None = None,
    seeds: Sequence[int] | None = None,
    deterministic: bool = False,
    evaluation_seed: int = 0,
    report: Callable[[int, int], None] = lambda seed, count: None,
    video: "VideoRequest | None" = None,
    environment: Environment | None = None,
    trust: bool = False,
    accept_change: bool = False,
) -> EvaluationSummary:
    """The summary of so many fresh episodes of each seed's frozen policy, the newest or that after
    `step` steps.

    `report(seed, episodes)` is called after every batch. With a `video`, the worst and the median
    episode are drawn, and the summary says under "video" what was written; `Run.video` is the short
    way. The summary of the newest policies is also kept in the run, for `canary report`.
    `environment`, `trust` and `accept_change` are those of `canary.load`; after a change the
    summary has "environment_changes".
    """
    run = as_run(run, environment, trust=trust, accept_change=accept_change)
    chosen = None if seeds is None else seed_ids(seeds)
    plan = EvaluationPlan(
        episodes=episodes,
        seeds=chosen,
        deterministic=deterministic,
        evaluation_seed=evaluation_seed,
    )
    film = None if video is None else _film(video, run)
    policies = loaded(run, step)
    if film is None:
        (table, seconds), drawn = play(policies, plan, report), {}
    else:
        table, seconds, made = film(policies, plan, report)
        drawn = {"video": made}
    digests = {
        str(seed): policies.identity(seed).sha256
        for seed in table["seed"].unique(maintain_order=True)
    }
    how = {
        "deterministic": deterministic,
        "evaluation_seed": evaluation_seed,
        "updates": policies.iteration,
        "policy_sha256": digests,
    }
    changes = run.config.environment_changes
    noted = {"environment_changes": list(changes)} if changes else {}
    summary = summarise_evaluation(run.directory, table, seconds) | how | drawn | noted
    if step is None and not deterministic and not changes:
        try:  # for `canary report`
            files.write_json(run.directory / EVALUATION, files.sealed(summary))
        except CanaryError as error:
            warnings.warn(str(error), stacklevel=2)
    return cast(EvaluationSummary, summary)


def video(
    run: "Run | str | Path",
    path: str | Path | None = None,
    episodes: int = 200,
    *,
    drawing: "Drawing | None" = None,
    most_frames: int = 300,
    step: int | None = None,
    seeds: Sequence[int] | None = None,
    deterministic: bool = False,
    evaluation_seed: int = 0,
) -> Path:
    """A .gif or .mp4 of the worst of so many fresh episodes beside the median one; video.gif in the
    run, if not said.

    `drawing` draws an environment that canary cannot (docs/rendering.md).
    """
    from canary.rendering.run import VideoRequest

    summary = evaluate(
        run, episodes, step=step, seeds=seeds, deterministic=deterministic, evaluation_seed=evaluation_seed,
        video=VideoRequest(path=path, drawing=drawing, most_frames=most_frames),
    )  # fmt: skip
    return Path(cast(dict[str, Any], summary)["video"]["path"])


def certify(
    run: "Run | str | Path",
    *,
    confidence: float = 0.95,
    episodes: int | None = None,
    early_stop: bool = True,
    step: int | None = None,
    seeds: Sequence[int] | None = None,
    shift: str | Sequence[str] = (),
    limit: float | None = None,
    epsilon: float | None = None,
    deterministic: bool = False,
    evaluation_seed: int | None = None,
    largest_step_cost: float | None = None,
    sign: Any = None,
    quiet: bool = True,
    environment: Environment | None = None,
    trust: bool = False,
    accept_change: bool = False,
) -> dict[str, Any]:
    """A certificate from fresh episodes of the run's frozen policies, also written into the run
    (docs/certification.md).

    `episodes` are the most per policy; None plans them. `shift` also certifies changed settings,
    "slip=0.1,0.2". `largest_step_cost` gives bounds on mean and CVaR where the environment does not
    state it; `sign` is a private key or the path of its file. `environment`, `trust` and `accept_change` are those of
    `canary.load`; after a change the certificate says what is different. For a policy that belongs
    to no run there is `canary.certification.certify`.
    """
    from canary.certification.run import CertificateRequest, certify_run

    run = as_run(run, environment, trust=trust, accept_change=accept_change)
    request = CertificateRequest(
        confidence=confidence,
        episodes=episodes,
        early_stop=early_stop,
        step=step,
        seeds=None if seeds is None else seed_ids(seeds),
        shift=texts("shift", shift),
        limit=limit,
        epsilon=epsilon,
        deterministic=deterministic,
        evaluation_seed=evaluation_seed,
        largest_step_cost=largest_step_cost,
        sign=sign,
    )
    return certify_run(
        run.directory, request, **_environment(run, accept_change=accept_change), quiet=quiet
    )


def best(
    run: "Run | str | Path",
    *,
    confidence: float = 0.95,
    tries: int = 3,
    selection_episodes: int = 1000,
    episodes: int | None = None,
    seeds: Sequence[int] | None = None,
    largest_step_cost: float | None = None,
    quiet: bool = True,
    accept_change: bool = False,
) -> "Best":
    """The stored policy with the highest return that is certified, over all seeds and kept states.

    Stored policies that stay within the limit on episodes of their own are ranked by return. The
    first `tries` of them are certified in turn on fresh episodes until one is SATISFIED, each at
    confidence 1 - (1 - confidence) / tries, which corrects for trying several.
    """
    from canary.certification.best import Search, find_best

    run = as_run(run, accept_change=accept_change)
    search = Search(
        confidence=confidence,
        tries=tries,
        selection_episodes=selection_episodes,
        episodes=episodes,
        seeds=None if seeds is None else seed_ids(seeds),
        largest_step_cost=largest_step_cost,
    )
    return find_best(
        run.directory, search, **_environment(run, accept_change=accept_change), quiet=quiet
    )


def export(
    run: "Run | str | Path",
    format: str = "onnx",
    path: str | Path | None = None,
    *,
    seed: int | None = None,
    step: int | None = None,
    environment: Environment | None = None,
    trust: bool = False,
) -> ExportRecord:
    """Write the policy of a seed (the first, if not said) as onnx or numpy, checked
    against JAX (docs/export.md).

    It goes to `path`, or below the run's `exports/`. `environment` and `trust` are those of
    `canary.load`.
    """
    from canary.export.run import export_run

    run = as_run(run, environment, trust=trust)
    out = None if path is None else Path(path)
    record = export_run(
        run.directory,
        format=format,
        seed=seed,
        step=step,
        out=out,
        environment=run.config.environment,
    )
    return cast(ExportRecord, record)


def as_run(
    run: "Run | str | Path",
    environment: Environment | None = None,
    *,
    trust: bool = False,
    accept_change: bool | None = None,
) -> "Run":
    """A run, or the one of that path or name; an opened run as it is, unless another environment or
    a change is spoken of."""
    from canary.api.face import RUNS, Run  # the face has these functions as methods

    if not isinstance(run, Run):
        place = find_run(str(run), RUNS)
    elif environment is None and not accept_change:
        return run
    else:
        place = run.directory
        environment = run.config.environment if environment is None else environment
    return Run(place, open_config(place, environment, trust=trust, accept_change=accept_change))


def texts(name: str, value: str | Iterable[str]) -> tuple[str, ...]:
    """One text or several; a sentence for anything else."""
    found = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(one, str) for one in found):
        raise CanaryError(f"{name} takes a text or a list of texts, not {value!r:.60}.")
    return found


def loaded(run: "Run", step: int | None) -> FrozenPolicies:
    """The policies at a step, or the newest, with a warning for every damaged checkpoint that was
    passed over."""
    policies = load_policies(run.config, run.directory, step)
    for note in policies.notes:
        warnings.warn(note, stacklevel=3)
    return policies


def seed_ids(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """4 means seeds 0 to 3; a sequence names them."""
    try:
        if isinstance(seeds, bool):
            raise TypeError
        try:
            return tuple(range(operator.index(seeds)))  # type: ignore[arg-type]
        except TypeError:
            return tuple(operator.index(seed) for seed in seeds)  # type: ignore[union-attr]
    except (TypeError, OverflowError, MemoryError):
        raise CanaryError(
            f"seeds must be a number of seeds or a list of whole numbers, not {seeds!r}."
        ) from None


def _environment(run: "Run", *, accept_change: bool) -> dict[str, Any]:
    """The environment of an opened run, and whether a change of it is accepted."""
    return {
        "environment": run.config.environment,
        "accept_change": accept_change or bool(run.config.environment_changes),
    }


def _film(video: "VideoRequest", run: "Run") -> Callable[..., Any]:
    """What plays the episodes and draws two of them; mistakes in the request are found now."""
    # Pillow and matplotlib's fonts: only where they are needed
    from canary.rendering import (
        run as videos,
    )

    return partial(
        videos.play_and_film, videos.plan_video(video, run.config.environment, run.directory)
    )
