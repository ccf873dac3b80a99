"""Runs beside each other: hand-made runs with hand-computed intervals."""

import pytest

from canary.errors import CanaryError
from canary.reporting.comparison import compare_runs
from reporting.test_summary import CONFIG, make_run


def test_runs_are_compared_with_the_first_on_the_seeds_that_both_have(tmp_path):
    first = make_run(tmp_path / "a")
    constraint = {"kind": "chance", "limit": 0.75, "epsilon": 0.25}
    second = make_run(tmp_path / "b", CONFIG | {"constraint": constraint})
    found = compare_runs([first, second])
    one, two = found["runs"]
    assert (one["differs"], two["differs"]) == ({"limit": 5.5}, {"limit": 0.75})
    assert one["return_mean"] is not None
    assert one["return_mean"]["mean"] == 0.625
    assert one["return_mean"]["lower"] is not None
    assert one["constraint_value"] is not None
    # No rate below 0
    assert (one["constraint_value"]["mean"], one["constraint_value"]["lower"]) == (0.375, 0.0)
    assert (one["safe_seeds"], one["return_against_first"]) == (1, None)
    assert two["return_against_first"] == {"seeds": 2, "difference": 0.0, "half_width": 0.0}


def test_what_cannot_be_compared_is_said(tmp_path):
    first = make_run(tmp_path / "a")
    place = {"environment": {"name": "EcoAnt", "settings": {}}}
    elsewhere = make_run(tmp_path / "b", CONFIG | place)
    for runs, sentence in (
        ([first], "at least two"),
        ([first, first], "named twice"),
        ([first, elsewhere], "IcyLake and EcoAnt cannot be compared"),
    ):
        with pytest.raises(CanaryError, match=sentence):
            compare_runs(runs)
