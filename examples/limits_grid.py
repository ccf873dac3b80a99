"""A grid of limits, each on several seeds, trained as one program: `canary.make_train`.

    python examples/limits_grid.py

`make_train` returns a pure function of a key, a limit and an epsilon. So `jax.vmap` trains over
seeds and over limits, and `jax.jit` compiles all of it once.
"""

import jax
import jax.numpy as jnp

import canary

LIMITS = jnp.array([1.5, 2.5, 3.5, 4.5, 5.5])


def main(total_steps: int | str = "200k", seeds: int = 2, overrides: tuple[str, ...] = ()):
    train = canary.make_train("IcyLake", total_steps=total_steps, overrides=overrides)
    keys = jax.random.split(jax.random.key(0), seeds)
    over_seeds = jax.vmap(train, in_axes=(0, None))
    _, metrics = jax.jit(jax.vmap(over_seeds, in_axes=(None, 0)))(keys, LIMITS)
    print("limit   return   P(cost > limit)")
    for limit, returns, violations in zip(
        LIMITS, late(metrics, "episode_return"), late(metrics, "episode_violation"), strict=True
    ):
        print(f"{limit:5.1f}   {returns:6.3f}   {violations:15.4f}")
    return metrics


def late(metrics, name):
    """The mean over seeds and the last quarter of the updates, for each limit."""
    updates = metrics[name].shape[-1]
    return jnp.nanmean(metrics[name][..., -(updates // 4) :], axis=(1, 2))


if __name__ == "__main__":
    main()
