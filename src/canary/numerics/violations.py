"""When an episode's cost is above its limit: strictly, and in the precision in which costs are
added up.

Costs are sums of float32. Three steps of 0.1 give float32's 0.3, which is a little more than the
0.3 of a Python float: compared with that, an episode that just keeps its limit would violate it. So
the limit is rounded first.
"""

import numpy as np
from jaxtyping import Bool, Float


def violates(cost: Float[np.ndarray, "*episode"], limit: float) -> Bool[np.ndarray, "*episode"]:
    """C > limit in float32; a cost that is not a number proves nothing and counts as a
    violation."""
    with np.errstate(over="ignore"):  # beyond float32: infinity, which is above every limit
        return ~(np.asarray(cost).astype(np.float32) <= np.float32(limit))
