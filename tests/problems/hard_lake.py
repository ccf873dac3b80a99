"""A lake on which no policy satisfies Cantelli's bound, though many keep P(C > limit) <= epsilon.

Eight of its 25 tiles are ice, and one of them lies beside the start. Every policy risks a little
ice early, which for the mean and variance of the whole cost is too much. A dead zone forgives it.
"""

from canary.environments.icy_lake import IcyLake

HARD_LAKE = IcyLake(map="SFFHF/HFFFH/FFFFF/FHHFF/HHHFG")
LIMIT, EPSILON = 3.5, 0.05

# Exact best returns (`canary.exact`), to 1e-6. Dead zone None: the paper's bound; 0: saturated
# cost.
BEST_UNCONSTRAINED, ITS_VIOLATION = 0.999412, 0.702200
BEST_UNDER_VAR, BEST_UNDER_CVAR = 0.831722, 0.579997
SMALLEST_VIOLATION = 0.012250
BEST_WITH_DEAD_ZONE = {
    None: None,
    0.0: None,
    0.2: None,
    0.4: 0.637443,
    0.5: 0.683514,
    0.6: 0.708446,
    0.7: 0.747182,
    0.8: 0.805865,
}
