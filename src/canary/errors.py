"""The one exception that a user's mistake may end in."""


class CanaryError(ValueError):
    """A mistake that one sentence explains: what is wrong, and what to do about it."""
