"""Trained policies for other places: one artefact holds the policy, its normaliser and the augmentation.

`numpy_policy` needs numpy alone. Nothing here is imported until it is asked for.
"""
