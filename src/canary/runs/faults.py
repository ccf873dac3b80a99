"""Training stops at the first number that is not finite or is absurdly large, or at the first
episode beyond its horizon, with a sentence that says where it came from."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from canary.config.config import RunConfig
from canary.numerics.sanity import sane
from canary.training import FAULT_KINDS
from canary.types import EpisodeEnds


class Fault(NamedTuple):
    """What went wrong and where; places count from 0, iterations from the first one looked at."""

    kind: str
    iteration: int
    step: int
    lane: int
    seed: int


def find_fault(
    faults: Float[np.ndarray, "seed iteration"], ends: EpisodeEnds, lanes: int, horizon: int
) -> Fault | None:
    """The first fault of some iterations: as the program noted it, or in the sums of the
    episodes."""
    if faults.any():
        # The earliest; among seeds, the first
        iteration, seed = map(int, np.argwhere(faults.T > 0)[0])
        place, kind = divmod(int(faults[seed, iteration]) - 1, len(FAULT_KINDS))
        return Fault(FAULT_KINDS[kind], iteration, *divmod(place, lanes), seed)
    for kind, good in {
        "cost": sane(ends.cost).reshape(*ends.ended.shape, -1).all(-1),
        "reward": sane(ends.reward),
        "end": np.asarray(ends.length) <= horizon,
    }.items():
        if not good.all():
            return Fault(kind, *map(int, np.argwhere(~np.moveaxis(good, 0, -1))[0]))
    return None


def fault_sentence(fault: Fault, config: RunConfig, first: int, run: Path) -> str:
    """A fault in the iterations from `first` on; the run was saved as it was before them."""
    training, name = config.training, config.environment_name
    update, lanes = first + fault.iteration, training.environments
    step = update * training.batch + fault.step * lanes + fault.lane + 1
    where = (
        f"seed {training.seeds[fault.seed]}, update {update + 1}, step {fault.step + 1} of "
        f"{training.rollout_length}, lane {fault.lane} (environment step {step:,})"
    )
    if fault.kind == "action":
        reason = f"The policy gave an action that is not finite: {where}."
    elif fault.kind == "end":
        reason = (
            f"{name} went on beyond its horizon of {config.environment.horizon:,} steps: {where}; "
            "write truncated = (time >= horizon) & ~terminated."
        )
    else:
        what = "an observation" if fault.kind == "observation" else f"a {fault.kind}"
        reason = (
            f"{name} gave {what} that is not finite, or absurdly large: {where}; `canary "
            "check-env` looks for the cause."
        )
    return f"{reason} {saved(first, run)}"


def unsound_sentence(seed: int, name: str, first: int, last: int, run: Path) -> str:
    """A weight or statistic of a seed that is not finite after the updates first, ..., last - 1."""
    when = f"update {last}" if last == first + 1 else f"one of the updates {first + 1} to {last}"
    return (
        f"Training gave numbers that are not finite, or absurdly large: {name} of seed {seed} in "
        f"{when}. Large costs and rewards do that (`canary check-env` looks at them), and large "
        f"learning rates. {saved(first, run)}"
    )


def saved(first: int, run: Path) -> str:
    """What is left of a run that failed in the updates from `first` on."""
    if first == 0:
        return "Nothing was trained yet."
    return f"The run is saved as it was after update {first}: canary train --resume {run}"
