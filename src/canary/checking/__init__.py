"""Is this an environment that can be trained on? By tracing, by a short rollout, and by whole
random episodes."""
