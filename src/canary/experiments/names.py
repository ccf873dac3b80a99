"""What can be named on the command line, with a line about each, and a default that its help states; no JAX.

A test holds these names equal to `ENVIRONMENTS`, `ALGORITHMS` and `PRESETS`.
"""

ENVIRONMENTS = {
    "EcoAnt": "run forward on four legs; the energy of each step is its cost",
    "IcyLake": "cross a slippery lake to the goal; every step that ends on ice costs 1",
    "PointGoal": "drive a point robot from goal to goal; every step inside a hazard costs 1",
    "PointGoal2500": "PointGoal with the horizon that the paper's returns suggest, 2500 instead of 1000",
}

ALGORITHMS = {
    "canary": "Cantelli constrained policy optimization: mean and variance of the cost bound its tail",
    "cpo": "constrained policy optimization on the violation indicator",
    "cppo": "clipped updates with a penalty on the conditional value at risk",
    "cvar-cpo": "constrained policy optimization on the conditional value at risk",
    "ppo": "proximal policy optimization, which knows no constraint",
}

PRESETS = {
    "fast": "the same algorithm with cheaper critic fits and less noise in its updates (default)",
    "paper": "the paper's hyper-parameters exactly",
}

TOTAL_STEPS = 300_000
"""Environment steps per seed, unless said otherwise."""
