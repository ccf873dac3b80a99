"""`--engine ray`: one task per unit on a Ray cluster. A unit whose worker or node dies is trained
again elsewhere.

Where the nodes share the runs' directory, a unit goes on from its last checkpoint; where they do
not, it starts anew. Either way its numbers are those of `--engine local`: a seed does not depend on
what runs beside it.
"""

import logging
from pathlib import Path
from typing import Any

from canary.config.config import RunConfig, config_from_dict, config_to_dict
from canary.errors import CanaryError
from canary.studies import store
from canary.studies.units import finished_runs, units_of, with_seeds
from canary.terminal.bars import counting_bar

RETRIES = 10


def train_unit(plain: dict[str, Any], place: str) -> list[store.Units]:
    """What a worker does: one seed, in a directory that it may share with others."""
    config = config_from_dict(plain)
    runs = Path(place)
    found = finished_runs(config, runs, quiet=True, leave_running=True)
    return [units_of(part, run) for part, run in found]


def ray_engine(quiet: bool) -> Any:
    """Trains on the cluster that RAY_ADDRESS names, the one that runs on this machine, or one made
    for the occasion."""
    try:
        import ray
    except ImportError:
        raise CanaryError("--engine ray needs Ray: pip install 'canary-rl[ray]'.") from None

    def train(configs: list[RunConfig], places: list[Path], trained: Any) -> None:
        if not configs:
            return
        ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
        task = ray.remote(max_retries=RETRIES, num_cpus=1)(train_unit)
        waiting = {}
        for index, (config, place) in enumerate(zip(configs, places, strict=True)):
            for seed in config.training.seeds:
                one = with_seeds(config, (seed,))
                folder = str(place.resolve() / f"seed-{seed}")
                waiting[task.remote(config_to_dict(one), folder)] = (
                    index,
                    f"{place.name}, seed {seed}",
                )
        _gather(ray, waiting, trained, quiet)

    return train


def _gather(ray: Any, waiting: dict[Any, tuple[int, str]], trained: Any, quiet: bool) -> None:
    """Put every unit into the store as it is finished; on Ctrl-C, or if one fails, the others are
    called off."""
    total = len(waiting)
    try:
        with counting_bar("units", quiet=quiet) as progress:
            progress(0, total, "waiting for the first unit")
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                index, label = waiting.pop(done[0])
                for units in _result(ray, done[0], label):
                    trained(index, units)
                progress(total - len(waiting), total, label)
    finally:
        for task in waiting:
            ray.cancel(task, force=True)


def _result(ray: Any, task: Any, label: str) -> list[store.Units]:
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise CanaryError(
            str(cause) if isinstance(cause, CanaryError) else f"{label} failed: {cause!r}"
        ) from error
    except ray.exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0]
        raise CanaryError(
            f"{label} could not be finished after {RETRIES} retries ({reason})."
        ) from error
