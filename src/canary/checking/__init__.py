"""Checks of an environment: tracing, a record of random actions, and simple policies."""
