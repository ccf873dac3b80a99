"""Environments outside JAX: one of them, and rows of them in this process or in workers. numpy
only, so that a worker process starts quickly and stays small."""
