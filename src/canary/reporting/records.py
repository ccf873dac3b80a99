"""The types of summaries: plain dictionaries that can be written as JSON.

Lists go over the seeds, in the order of `seed_ids`. None means unknown, never 0.
"""

from typing import Any, NotRequired, TypedDict


class Summary(TypedDict):
    """What was trained on what, and what its episodes were like."""

    env: str
    algorithm: str
    preset: str
    constraint: dict[str, Any]
    limit: float
    epsilon: float | None
    seeds: int
    seed_ids: list[int]
    total_steps: int
    violation_probability: float | None
    violation_standard_error: float | None
    violation_jitter: float | None
    jitter_standard_error: float | None
    return_mean: float | None
    return_standard_error: float | None
    cost_mean: float | None
    cost_deviation: float | None
    length_mean: float | None
    episodes_per_seed: list[int]
    violation_per_seed: list[float | None]
    jitter_per_seed: list[float | None]
    return_per_seed: list[float | None]
    cost_per_seed: list[float | None]
    cost_deviation_per_seed: list[float | None]
    length_per_seed: list[float | None]
    constraint_text: str
    constraint_label: str
    constraint_allowed: float
    constraint_value: float | None
    """What the constraint limits, as the mean over seeds."""
    constraint_standard_error: float | None
    constraint_interval: list[float] | None
    """Of all episodes together, at 95%."""
    constraint_per_seed: list[float | None]
    constraint_interval_per_seed: list[list[float] | None]
    safe_fraction: float | None
    constraints: NotRequired[list[dict[str, Any]]]
    """With several costs, the same measures for each constraint. The summary itself then has the
    worst, in units of what is allowed."""
    steps_per_second: float | None
    wall_seconds: float | None
    run_dir: NotRequired[str]


class TrainingSummary(Summary):
    """Of the second half of the updates that a run has done."""

    violation_probability_whole: float | None
    """P over the whole of training, from the first episode on."""
    violation_whole_per_seed: list[float | None]
    status: str
    planned_steps: int
    warnings: dict[str, str]
    """By seed, if it is stuck or timid."""
    yardstick: str | None
    """Where there are warnings: whether a constant or random action stays within the limit."""
    start: dict[str, Any] | None
    """The run or policy that training began with, and the seed of it that each seed took."""
    final_check: "EvaluationSummary | None"
    """The newest policies, frozen, on fresh episodes: the check at the end of training, or the last
    evaluation. None if they were not played since the last update."""


class EvaluationSummary(Summary):
    """Of fresh episodes of frozen policies."""

    deterministic: bool
    evaluation_seed: int
    updates: int
    policy_sha256: dict[str, str]
    video: NotRequired[dict[str, Any]]
    environment_changes: NotRequired[list[str]]
    """How the environment differs from that of training, if `accept_change` allowed it."""


class ExportRecord(TypedDict):
    """What `canary.export` wrote, beside the metadata of the file."""

    path: str
    file_sha256: str
    policy_sha256: str
    format: str
    bytes: int
    run_dir: str
    max_abs_difference: float
    """The largest difference from JAX on random inputs, of the action distribution."""
    max_output_difference: float
    """The same of the network's raw outputs."""
    checked_inputs: int
    notes: list[str]
