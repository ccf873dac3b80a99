"""The Python face: train, load and use runs, and act with their policies.

For example:

    run = canary.train("IcyLake", constraint=canary.Chance(limit=5.5, epsilon=0.02), seeds=4)
    run.summary()["violation_probability"]
    run.certify()["sentence"]
    episode = run.policy(seed=0).start()
    action = episode.act(observation)
    episode.spend(cost)  # what the environment then charged for it
"""

from canary.api.face import Run as Run
from canary.api.face import TrainingInterrupted as TrainingInterrupted
from canary.api.face import compare as compare
from canary.api.face import load as load
from canary.api.face import train as train
from canary.api.using import certify as certify
from canary.api.using import evaluate as evaluate
from canary.api.using import export as export
from canary.api.using import seed_ids as seed_ids
