"""Record what Safety-Gymnasium 1.0.0 does, for tests to replay; run it again only if the recording
should change.

It runs on Python 3.10 (upstream's pins exclude newer ones), in an environment of its own:

    python3.10 -m venv upstream && upstream/bin/pip install safety-gymnasium==1.0.0
    MUJOCO_GL=disabled upstream/bin/python tests/environments/golden/make_safety_gymnasium_golden.py

It writes safety_point_goal.npz beside itself. Every array has a first axis of steps; names ending
in _before belong to the state in which the action was taken.
"""

from pathlib import Path

import numpy as np
import safety_gymnasium

SCRIPT = np.repeat([(1.0, 0.0), (1.0, 1.0), (0.02, -0.5)], 10, axis=0)
LENGTH = {"script": len(SCRIPT), "random": 90, "goal": 270, "vase": 130}
"""Steps of each way to drive: as above, actions held for five steps, towards the goal, towards the
vase."""


def read(task):
    """World pose and velocity of the robot, and pose and velocity of the vase."""
    matrix = task.agent.mat
    heading = np.arctan2(matrix[1, 0], matrix[0, 0])
    rotation = matrix[:2, :2]
    velocity = rotation @ np.asarray(task.agent.get_sensor("velocimeter"))[:2]
    vase = task.data.joint("vase0")
    return {
        "position": task.agent.pos[:2].copy(),
        "heading": heading,
        "velocity": velocity,
        "yaw_rate": np.asarray(task.agent.get_sensor("gyro"))[2],
        "goal": np.asarray(task.goal.pos)[:2].copy(),
        "vase_position": vase.qpos.copy(),
        "vase_velocity": vase.qvel.copy(),
    }


def towards(state, target):
    """Full speed ahead once the target is ahead."""
    offset = target - state["position"]
    angle = np.arctan2(offset[1], offset[0]) - state["heading"]
    angle = (angle + np.pi) % (2 * np.pi) - np.pi
    return np.array([1.0 if abs(angle) < 0.7 else -0.02, np.clip(2 * angle, -1, 1)])


def record(env, seed, how, rng):
    env.reset(seed=seed)
    task = env.unwrapped.task
    hazards = np.array(task.hazards.pos)[:, :2]
    rows = []
    for step in range(LENGTH[how]):
        before = read(task)
        if how == "script":
            action = SCRIPT[step]
        elif how == "random":
            action = rng.uniform(-1, 1, 2) if step % 5 == 0 else action
        else:
            action = towards(
                before, before["goal"] if how == "goal" else before["vase_position"][:2]
            )
        observation, reward, cost, terminated, truncated, _ = env.step(action)
        assert not terminated
        assert not truncated
        row = {f"{name}_before": value for name, value in before.items()}
        row |= read(task)
        row |= {"hazards": hazards, "action": action, "reward": reward, "cost": cost, "seed": seed}
        row |= {"observation": observation.astype(np.float32)}
        rows.append(row)
    return rows


def main():
    env = safety_gymnasium.make("SafetyPointGoal1-v0")
    rng = np.random.default_rng(0)
    rows = []
    for seed, how in [(0, "script"), (0, "random"), (1, "goal"), (2, "vase")]:
        rows += record(env, seed, how, rng)
    arrays = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    reached = np.abs(arrays["goal"] - arrays["goal_before"]).sum(1) > 0
    pushed = np.abs(arrays["vase_position"] - arrays["vase_position_before"])[:, :2].max(1) > 1e-6
    print(
        f"{len(rows)} steps, {reached.sum()} goals, cost {arrays['cost'].sum():.0f}, "
        f"{pushed.sum()} pushes"
    )
    np.savez_compressed(Path(__file__).with_name("safety_point_goal.npz"), **arrays)


if __name__ == "__main__":
    main()
