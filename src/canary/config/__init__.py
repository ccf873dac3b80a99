"""The configuration of a run, its settings as text, and the presets."""

PRESETS = {
    "fast": "our best settings, with small networks and large batches (default)",
    "paper": "the paper's equations, hyper-parameters and steps; canary is cantelli-cpo",
    "authors": "the same with details of the authors' code, which comes near their table",
}
"""A line about each function of `presets`, which imports JAX and is slow to load."""
