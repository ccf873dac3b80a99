"""A Gymnasium environment with a cost of yours: trained, certified and exported.

python examples/pendulum.py
canary train --env gymnasium:Pendulum-v1 --cost examples.pendulum:speeding --limit 20 --epsilon 0.1
"""

import canary
from canary.environments import from_gymnasium


def speeding(observation, action, next_observation, info):
    """How much faster than 5 rad/s the pendulum swings."""
    return max(abs(float(next_observation[2])) - 5.0, 0.0)


def main(total_steps: int = 400_000, **how) -> canary.Run:
    pendulum = from_gymnasium("Pendulum-v1", cost=speeding)
    constraint = canary.Chance(limit=20, epsilon=0.1)
    run = canary.train(pendulum, constraint=constraint, seeds=2, total_steps=total_steps, **how)
    print(run.certify()["sentence"])
    print(run.export("numpy")["path"])
    return run


if __name__ == "__main__":
    main()
