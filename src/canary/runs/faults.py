"""Training ends at the first number that is not finite, with a sentence that says which and where it came from."""

from typing import Any

import numpy as np
from jaxtyping import Float

from canary.config.config import RunConfig
from canary.training import FAULT_KINDS


def fault_sentence(
    faults: Float[np.ndarray, "seed iteration"], config: RunConfig, first: int, directory: Any
) -> str | None:
    """What went wrong in the iterations from `first` on, or None; `directory` is where the run was saved before it."""
    if not faults.any():
        return None
    by_time = np.argwhere(faults.T > 0)[0]  # the earliest iteration; among seeds, the first
    iteration, seed = int(by_time[0]), int(by_time[1])
    lanes = config.training.environments
    place, kind = divmod(int(faults[seed, iteration]) - 1, len(FAULT_KINDS))
    step, lane = divmod(place, lanes)
    update = first + iteration
    where = (
        f"seed {config.training.seeds[seed]}, update {update + 1}, step {step + 1} of {config.training.rollout_length}, "
        f"lane {lane} (environment step {update * config.training.batch + step * lanes + lane + 1:,})"
    )
    failure = getattr(config.environment, "host_failure", lambda: None)()
    if failure is not None:
        reason = f"{failure.removesuffix('.')} [{where}]."
    elif FAULT_KINDS[kind] == "action":
        reason = f"The policy gave an action that is not finite: {where}."
    else:
        reason = (
            f"{config.environment_name} gave a {FAULT_KINDS[kind]} that is not finite: {where}; "
            "`canary check-env` looks for the cause."
        )
    if update == 0 or first == 0:
        return f"{reason} Nothing was trained yet."
    return f"{reason} The run is saved as it was after update {first}: canary train --resume {directory}"
