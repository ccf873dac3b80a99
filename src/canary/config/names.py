"""What can be named on the command line besides environments, with a line about each; no JAX.

A test holds these names equal to `ALGORITHMS` and `PRESETS`.
"""

ALGORITHMS = {
    "canary": "Cantelli constrained policy optimization: mean and variance of the cost bound its tail",
    "cpo": "constrained policy optimization on the violation indicator",
    "cppo": "clipped updates with a penalty on the conditional value at risk",
    "cvar-cpo": "constrained policy optimization on the conditional value at risk",
    "ppo": "proximal policy optimization, which knows no constraint",
    "ppo-lagrangian": "clipped updates with a price on the constraint, of any kind",
}

PRESETS = {
    "fast": "the shaped bound, small networks and an update that copes with noise (default)",
    "paper": "the paper's equations, hyper-parameters and steps",
}
