"""Environment steps per second of PointGoal on each of its engines, resets included.

python -m benchmarks.point_goal_speed
"""

from benchmarks.environment_speed import FEW, fastest, rollout_program
from canary.environments.point_goal import PointGoal

CASES = {
    "closed form": (PointGoal(), 2000),
    "native": (PointGoal(engine="native"), 200),
    "native, free vase": (PointGoal(engine="native", vase="free"), 200),
    "mjx": (PointGoal(engine="mjx"), 200),
}

if __name__ == "__main__":
    for name, (environment, steps) in CASES.items():
        seconds = fastest(rollout_program(environment, FEW, steps))
        print(f"{name:<20} {FEW * steps / seconds:>10,.0f} steps/s")
