"""Can an environment be trained on? Tracing, a record of random actions, and simple policies."""
