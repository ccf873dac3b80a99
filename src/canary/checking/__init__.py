"""Is this an environment that can be trained on? By tracing, a short rollout, and whole random
episodes."""
