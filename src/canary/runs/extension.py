"""Train a run for longer than it was planned.

The new plan is one number in the manifest, written at once; config.json stays what the run began
with. Schedules (learning rates, radii) are functions of the share of the plan that is done, so a
longer plan takes them back.
"""

from dataclasses import replace
from pathlib import Path

from canary.config.run_config import RunConfig, checked
from canary.errors import CanaryError
from canary.runs.manifest import stored_manifest, update_manifest


def extend(run: Path, config: RunConfig, total_steps: int) -> tuple[RunConfig, list[str]]:
    """The configuration with the longer plan, now the run's own, and what has to be said. For the
    run's holder alone."""
    training, done = config.training, stored_manifest(run)["steps"]
    if isinstance(total_steps, bool) or not isinstance(total_steps, int) or total_steps < 1:
        raise CanaryError(f"total_steps must be a positive whole number, not {total_steps!r:.40}.")
    longer = checked(replace(config, training=replace(training, total_steps=total_steps)))
    if longer.training.updates < training.updates:
        raise CanaryError(
            f"{run} is planned for {training.total_steps:,} steps; --total-steps can make that "
            f"more, not {total_steps:,}."
        )
    if total_steps > training.total_steps and longer.training.updates == training.updates:
        raise CanaryError(
            f"{total_steps:,} steps are no more updates than the {training.total_steps:,} that "
            f"{run} is planned for: an update takes {training.batch:,}; ask for at least "
            f"{(training.updates + 1) * training.batch:,}."
        )
    if longer.training.updates == training.updates:
        return config, []
    steps = longer.training.updates * training.batch
    update_manifest(run, extended_steps=total_steps, total_steps=steps)
    before, after = (done / (plan.updates * training.batch) for plan in (training, longer.training))
    said = (
        f"The plan is {total_steps:,} steps now, instead of {training.total_steps:,}. Schedules "
        f"such as learning rates run over the whole plan, so they go back from {before:.0%} to "
        f"{after:.0%} of their way: this is not the run that {total_steps:,} steps planned from "
        "the start would have been."
    )
    return longer, [said]
