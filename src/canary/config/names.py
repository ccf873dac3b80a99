"""What can be named on the command line besides environments, with a line about each; no JAX.

A test holds these names equal to `ALGORITHMS` and `PRESETS`.
"""

ALGORITHMS = {
    "canary": "Cantelli's bound on the shaped cost, with a price in clipped updates",
    "cantelli-cpo": "Canary as published: the Cantelli bound in a trust region",
    "cpo": "constrained policy optimization on the violation indicator",
    "cppo": "clipped updates with a penalty on the conditional value at risk",
    "cvar-cpo": "constrained policy optimization on the conditional value at risk",
    "ppo": "proximal policy optimization, which knows no constraint",
    "ppo-lagrangian": "clipped updates with a price on the constraint, of any kind",
}

PRESETS = {
    "fast": "the best that we know, with small networks and large batches (default)",
    "paper": "the paper's equations, hyper-parameters and steps; canary is cantelli-cpo",
    "authors": "the same with the details of the authors' code, which comes near their table",
}
