"""Numeric settings as run-time values: another number needs no other program, and gives what it
gives as a constant."""

from dataclasses import dataclass, field
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.small_shop import SmallShop
from jax import monitoring
from jax.experimental.compilation_cache import compilation_cache

import canary
from canary import Discrete, EnvironmentState
from canary.certification.certify import Subject
from canary.certification.certify import make_player as make_certified_player
from canary.certification.plan import Plan
from canary.checking.probe import short_record
from canary.config.config import make_config
from canary.environments import from_gymnasium, from_gymnax
from canary.environments.eco_ant import EcoAnt
from canary.environments.icy_lake import IcyLake
from canary.environments.numbers import run_time_numbers, with_numbers
from canary.environments.point_goal import PointGoal
from canary.evaluation import make_player, play_episodes
from canary.networks import make_policy
from canary.rollout import CostAccount
from canary.runs import seeds
from canary.runs.seeds import make_groups
from problems.foreign_environments import GymnaxWalk
from problems.small_runs import small_config

SMALL = ("training.environments=4", "training.rollout_length=50", "algo.hidden=[8]")
MISS = "/jax/compilation_cache/cache_misses"


@dataclass(frozen=True)
class Walk:
    """x' = x + the gain; each subclass uses its gain in another way."""

    gain: float = 2.0
    scale: float = 0.5
    horizon: int = 5
    observation_size = 1
    normalise_observation = False
    action_space = Discrete(2)

    def moved(self):
        return self.gain * self.scale

    def reset(self, key):
        return self._state(jax.random.uniform(key), jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        return self._state(state.inner + action * self.moved(), state.time + 1)

    def _state(self, x, time):
        no = jnp.zeros((), bool)
        x = jnp.asarray(x, jnp.float32)
        return EnvironmentState(x, x[None], x, x, no, time >= self.horizon, time)


class Branching(Walk):
    def moved(self):
        return self.scale if self.gain > 0 else 0.0


class Tabulated(Walk):
    def moved(self):
        return jnp.asarray(np.array([self.gain]))[0] * self.scale


class Remembering(Walk):
    """Keeps what it computed first, in whichever part of a program that was."""

    @cached_property
    def kept(self):
        return self.gain * 2

    def moved(self):
        return self.kept * self.scale


class Shaping(Walk):
    def moved(self):
        return jnp.ones(int(self.gain)).sum() * self.scale


class Logging(Walk):
    def moved(self):
        return jnp.ones(self.horizon).mean() * self.gain * self.scale


@dataclass(frozen=True)
class Derived(Walk):
    """Computes from its settings once, when it is made."""

    def __post_init__(self):
        object.__setattr__(self, "twice", np.float32(2 * self.gain))

    def moved(self):
        return self.twice * self.scale


class Broken(Walk):
    def moved(self):
        raise ValueError("no")


class CallingBack(Walk):
    def moved(self):
        number = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(lambda: np.float32(1), number, vmap_method="sequential")


@dataclass(frozen=True)
class Counted(Walk):
    """Reckons with whole numbers."""

    rows: int = 4
    columns: int = 6
    wide: bool = True

    def moved(self):
        return self.gain * self.scale / (self.rows * self.columns if self.wide else 1)


class Looping(Counted):
    def moved(self):
        return jax.lax.fori_loop(0, self.rows, lambda _, x: x + self.gain * self.scale, 0.0)


@dataclass(frozen=True)
class Gains:
    left: float = 1.0


@dataclass(frozen=True)
class Nested(Walk):
    gains: Gains = field(default_factory=Gains)

    def moved(self):
        return self.gains.left + 0.0 * self.gain


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        (IcyLake(), {"slip", "horizon"}),
        (PointGoal(), {"horizon"}),
        (
            EcoAnt(
                engine="native"
            ),  # its frame skip is in the engine, and in the size of its buffers
            {
                "horizon",
                "noise_scale",
                "healthy_bonus",
                "control_cost",
                "battery_limit",
                "reset_noise",
            },
        ),
        (SmallShop(), {"burst", "horizon"}),
        (Walk(), {"gain", "scale", "horizon"}),
        (Branching(), {"scale", "horizon"}),
        (Tabulated(), {"scale", "horizon"}),
        (Remembering(), {"gain", "scale", "horizon"}),
        (Shaping(), {"scale", "horizon"}),
        (Logging(), {"gain", "scale"}),  # a place for every step,
        (Broken(), set()),
        (CallingBack(), set()),  # programs with Python callbacks are kept nowhere
        (Counted(), {"gain", "scale", "horizon", "rows", "columns"}),
        # The product of these is larger than 2^31, so no program reckons with it
        (Counted(rows=10**6, columns=10**6), {"horizon"}),
        (Counted(rows=2**40), {"horizon"}),
        (Looping(), {"gain", "scale", "horizon", "columns"}),  # a loop of known length is faster
        (Nested(), {"gain", "scale", "gains.left", "horizon"}),
        (from_gymnasium("Pendulum-v1", cost=lambda *_: 0.0, g=9.0), {"token"}),
        (from_gymnax(GymnaxWalk()), {"params.max_steps_in_episode", "params.goal", "horizon"}),
    ],
    ids=lambda value: getattr(type(value), "__name__", None),
)
def test_which_settings_are_run_time_values(environment, names):
    assert run_time_numbers(environment).keys() == names


def test_an_environment_with_other_numbers_leaves_the_first_as_it_was():
    first = Nested(gain=3.0)
    changed = with_numbers(first, {"gain": 5.0, "gains.left": 7.0})
    assert (changed.gain, changed.gains.left) == (5.0, 7.0)
    assert (first.gain, first.gains.left) == (3.0, 1.0)
    assert with_numbers(first, {}) is first  # it may hold worker processes, which only it can end


def program(environment):
    """The text of a program that steps an environment."""
    state = environment.reset(jax.random.key(0))
    step = jax.jit(
        lambda numbers: with_numbers(environment, numbers).step(state, jnp.int32(1), None)
    )
    return step.lower(run_time_numbers(environment)).as_text()


def test_programs_differ_only_in_what_is_compiled_in():
    """What an environment derived from a setting is compiled in, so its program is never taken for
    that of another."""
    assert program(Walk(2.0)) == program(Walk(3.0))
    assert program(Counted(rows=4)) == program(Counted(rows=5, columns=9))
    assert program(Counted(rows=10**6, columns=10**6)) != program(
        Counted(rows=10**6, columns=10**5)
    )
    assert program(Derived(2.0)) == program(Derived(2.0)) != program(Derived(3.0))


def training_program(constraint, total_steps):
    """The text of the program that trains Canary under these terms."""
    config = make_config("IcyLake", "canary", constraint, overrides=SMALL, total_steps=total_steps)
    groups = make_groups(config)
    try:
        state = jax.eval_shape(
            groups._init, jnp.zeros(1, jnp.int32), groups._terms, groups._numbers
        )
        return groups._chunk.lower(state, np.int32(1), groups._numbers).as_text()
    finally:
        groups.close()


def test_another_limit_epsilon_and_length_of_a_run_train_by_the_same_program():
    """Also where the preset chooses another dead zone for them."""
    assert training_program(canary.Chance(5.5, 0.02), 4000) == training_program(
        canary.Chance(9.0, 0.005), 8000
    )


@pytest.fixture
def misses(tmp_path):
    """How many programs were compiled, for no kept one served; at first none is kept."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    found, before = [], {name: getattr(jax.config, name) for name in settings}

    def listen(event, **_):
        found.append(event)

    def configure(values):
        for name, value in values.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()

    configure(settings)
    monitoring.register_event_listener(listen)
    yield lambda: found.count(MISS)
    monitoring.unregister_event_listener(listen)
    configure(before)


def test_training_and_its_check_with_another_number_compile_nothing(misses, tmp_path):
    def train(shop):
        canary.train(
            shop, "ppo", constraint=canary.Chance(6.5, 0.05), seeds=1, total_steps=400, out=tmp_path, quiet=True,
            overrides=SMALL,
        )  # fmt: skip

    train(SmallShop(burst=0.02, horizon=40))
    before = misses()
    assert before > 0
    train(SmallShop(burst=0.04, horizon=33))
    assert misses() == before


@pytest.mark.parametrize(
    ("environment", "other"),
    [
        (EcoAnt(noise_scale=0.1), EcoAnt(noise_scale=0.3, horizon=50)),
        (
            from_gymnasium("Pendulum-v1", cost=lambda *_: 1.0, g=9.0, workers=0),
            from_gymnasium("Pendulum-v1", cost=lambda *_: 2.0, g=5.0, workers=0),
        ),
    ],
    ids=["EcoAnt", "Pendulum"],
)
def test_environments_on_the_host_are_compiled_once(misses, environment, other):
    """Their programs call the host by name, so they are kept like any other."""

    def train(environment):
        config = make_config(
            environment, "ppo", canary.Chance(10.0, 0.05), overrides=SMALL, total_steps=400
        )
        return trained(config, 1)

    train(environment)
    before = misses()
    assert before > 0
    train(other)
    assert misses() == before


def test_evaluation_and_certification_with_another_number_and_limit_compile_nothing(misses):
    policy = make_policy(jax.random.key(0), 3, SmallShop().action_space, (8,))
    keys = jax.random.split(jax.random.key(1), 16)

    def play(burst, limit, horizon):
        shop, account = SmallShop(burst=burst, horizon=horizon), CostAccount(limit, 1.0)
        ends = make_player(shop, account)(policy, None, keys)
        subject = Subject(shop, account, canary.Chance(limit, 0.05))
        make_certified_player(subject, Plan())(policy, None, keys[0], np.arange(16))
        return ends, jax.jit(partial(play_episodes, shop, account))(policy, None, keys)

    play(0.02, 6.5, 30)
    before = misses()
    assert before > 0
    found, constant = play(0.5, 5.0, 21)
    assert misses() == before + 1  # the one with constants
    jax.tree.map(np.testing.assert_array_equal, found, constant)
    assert set(np.asarray(found.length)) == {21}


def trained(config, updates=3):
    groups = make_groups(config)
    try:
        groups.start()
        records = groups.advance(updates)
        return jax.tree.leaves((groups.stacked().learner, records))
    finally:
        groups.close()


def test_results_are_those_of_constants(monkeypatch):
    config = small_config(seeds=(3,), merge_capacity=0)
    found = trained(config)
    monkeypatch.setattr(seeds, "run_time_numbers", lambda environment: {})
    for one, other in zip(found, trained(config), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [Walk, Remembering, Counted])
def test_the_numbers_count(kind):
    """A record with a number is that of the environment with that number as a constant."""
    for gain in (1.0, 2.0):
        environment = kind(gain)
        seen = short_record(environment).states.observation
        assert set(np.round(np.diff(seen[:, :, 0], axis=0), 4).ravel()) == {
            0.0,
            np.round(np.float32(environment.moved()), 4),
        }
