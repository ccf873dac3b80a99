"""What the benchmarks measure."""

from functools import partial

import numpy as np
import polars as pl
from benchmarks import warm_start


def test_a_seed_reaches_a_limit_once_it_is_safe_and_earns():
    """Two episodes per update: safe from update 60 on, and earning from update 100 on."""
    iteration = np.repeat(np.arange(200), 2)
    episodes = pl.DataFrame({
        "iteration": iteration, "valid": True,
        "cost": np.where(iteration < 60, 9.0, 1.0), "return": np.where(iteration < 100, 0.0, 1.0),
    })  # fmt: skip
    reach = partial(warm_start.steps_to_reach, episodes, epsilon=0.02, batch=10)
    assert reach(limit=5.0, reward=0.0) == (60 + 49) * 10  # the first 2 of 100 may violate
    assert reach(limit=5.0, reward=1.0) == (100 + 50) * 10
    assert reach(limit=5.0, reward=2.0) is None
