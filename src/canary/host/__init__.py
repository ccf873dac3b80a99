"""Environments outside JAX, which a Python loop steps: how one is made and played, what its spaces
mean to a policy, and lanes of them as functions of seeds and actions. numpy only."""
