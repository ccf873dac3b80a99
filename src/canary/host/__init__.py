"""Environments outside JAX, which a Python loop steps: making and playing one, its spaces, and
lanes of environments whose states are functions of seeds and actions. numpy only."""
