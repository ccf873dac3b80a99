"""Trained policies for other places: one artefact holds the policy, its normaliser and the account.

`numpy_policy` needs numpy alone. Nothing here is imported until it is asked for.
"""
