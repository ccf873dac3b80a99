"""The Python interface: train, load and use runs, and act with their policies.

For example:

    run = canary.train("IcyLake", constraint=canary.Chance(limit=5.5, epsilon=0.02), seeds=4)
    run.summary()["violation_probability"]
    run.certify()["sentence"]
    episode = run.policy(seed=0).start()
    action = episode.act(observation)
    episode.spend(cost)  # the cost of that step
"""

from canary.api.run import Run as Run
from canary.api.run import TrainingInterrupted as TrainingInterrupted
from canary.api.run import certify as certify
from canary.api.run import chosen_seeds as chosen_seeds
from canary.api.run import compare as compare
from canary.api.run import evaluate as evaluate
from canary.api.run import export as export
from canary.api.run import load as load
from canary.api.training import make_train as make_train
from canary.api.training import train as train
