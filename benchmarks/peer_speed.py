"""Training speed of a peer beside canary's: PPO on the same Gymnasium task, with the same batch,
epochs, minibatches and networks, in one process.

    python -m venv peer && peer/bin/pip install stable-baselines3 torch
    peer/bin/python benchmarks/peer_speed.py sb3
    python -m benchmarks.peer_speed canary

Prints environment steps per second of processor time, without start and compilation: the first
updates do not count. A peer has a virtual environment of its own, so this file imports only what it
measures.
"""

import sys
import time

TASK = "Pendulum-v1"
LANES, LENGTH, EPOCHS, MINIBATCH, HIDDEN = 8, 250, 4, 500, 64
BATCH = LANES * LENGTH
UPDATES, FIRST = 20, 5  # those that are played, and those of them that do not count


def sb3() -> float:
    """Seconds of the last updates."""
    import torch  # pyrefly: ignore[missing-import]
    from stable_baselines3 import PPO  # pyrefly: ignore[missing-import]
    from stable_baselines3.common.env_util import make_vec_env  # pyrefly: ignore[missing-import]

    torch.set_num_threads(1)
    networks = {"net_arch": [HIDDEN, HIDDEN]}
    model = PPO(
        "MlpPolicy", make_vec_env(TASK, LANES), n_steps=LENGTH, n_epochs=EPOCHS,
        batch_size=MINIBATCH, policy_kwargs=networks, device="cpu",
    )  # fmt: skip
    model.learn(FIRST * BATCH)
    began = time.process_time()
    model.learn((UPDATES - FIRST) * BATCH)
    return time.process_time() - began


def canary() -> float:
    """The same."""
    import tempfile

    import canary

    ended = []
    settings = {
        "training.environments": LANES,
        "training.rollout_length": LENGTH,
        "algo.epochs": EPOCHS,
        "algo.minibatch_size": MINIBATCH,
        "algo.hidden": [HIDDEN, HIDDEN],
    }
    with tempfile.TemporaryDirectory() as place:
        canary.train(
            f"gymnasium:{TASK}", "ppo", canary.Chance(1.0, 0.1), cost="benchmarks.peer_speed:free",
            seeds=1, total_steps=UPDATES * BATCH, overrides=settings, out=place, quiet=True,
            final_check=False, callback=lambda _: ended.append(time.process_time()),
        )  # fmt: skip
    return ended[-1] - ended[FIRST - 1]


def free(observation, action, next_observation, info) -> float:
    """The task has no cost."""
    return 0.0


if __name__ == "__main__":
    name = sys.argv[1]
    seconds = {"sb3": sb3, "canary": canary}[name]()
    print(f"{name}: {(UPDATES - FIRST) * BATCH / seconds:,.0f} steps per second of processor time")
