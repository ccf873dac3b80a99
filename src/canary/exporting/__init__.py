"""Trained policies outside a run: the episode handle, and files for other programs.

`numpy_policy` needs numpy alone. Nothing here is imported until it is asked for.
"""
