"""One digest per behaviour: another one if anything that matters changes."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from canary.exporting import numpy_policy
from canary.rollout import CostAccount
from exporting.portable_policies import make_portable, with_critics


def changed(tree, index: int):
    """The tree with one number of one array changed by a little."""
    leaves, structure = jax.tree.flatten(tree)
    array = np.array(leaves[index])
    array.flat[0] += 1e-3
    return jax.tree.unflatten(structure, [*leaves[:index], array, *leaves[index + 1 :]])


def test_everything_that_determines_behaviour_is_in_it():
    portable = with_critics(make_portable(normalised=True, continuous=True), dead_zone=0.3)
    policy, statistics, critics = portable.policy, portable.statistics, portable.critics
    environment: Any = portable.environment
    assert critics is not None
    count = len(jax.tree.leaves(policy))
    variants = {
        **{f"policy {i}": replace(portable, policy=changed(policy, i)) for i in range(count)},
        **{
            f"statistics {i}": replace(portable, statistics=changed(statistics, i))
            for i in range(3)
        },
        "critics": replace(
            portable, critics=replace(critics, networks=changed(critics.networks, 0))
        ),
        "dead zone": replace(portable, critics=replace(critics, dead_zone=0.4)),
        "no critics": replace(portable, critics=None),
        "limit": replace(portable, account=CostAccount(2.6, 1.0)),
        "discount": replace(portable, account=CostAccount(2.5, 0.99)),
        "clock": replace(portable, account=CostAccount(2.5, 1.0, 20)),
        "settings": replace(portable, environment=replace(environment, slip=0.26)),
        "name": replace(portable, environment=replace(environment, name="Other")),
        "horizon": replace(portable, environment=replace(environment, horizon=21)),
    }
    digests = {name: variant.identity.sha256 for name, variant in variants.items()}
    assert len({*digests.values(), portable.identity.sha256}) == len(variants) + 1


def test_numpy_alone_computes_the_same():
    identity = with_critics(make_portable(normalised=True)).identity
    assert numpy_policy.digest(identity.facts, identity.arrays) == identity.sha256
    assert identity.sha256 == with_critics(make_portable(normalised=True)).identity.sha256
