"""Trained policies outside a run: the episode handle, and files for other programs.

`numpy_policy` needs numpy alone. Modules are imported at their first use.
"""
