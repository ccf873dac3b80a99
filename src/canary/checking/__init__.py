"""Checks that an environment can be trained on: tracing, a short rollout, whole random episodes."""
