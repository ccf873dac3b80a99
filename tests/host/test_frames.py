"""Functions of the host that programs call by name."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import canary
from canary.environments.host_call import HostFunction

SHAPES = []


def noted(x, y):
    SHAPES.append((x.shape, y.shape))
    return x * 2 + y[..., None]


NOTED = HostFunction("test_noted", noted)


def met(x):
    if not hasattr(MET, "before"):
        MET.before = True
        STRANGERS.append(threading.get_ident())
    return x + 1


MET, STRANGERS = threading.local(), []
MEET = HostFunction("test_meet", met)
FIRST = HostFunction("test_first", lambda x: x)
FAILING = HostFunction("test_failing", lambda x: x / np.array({})["no"])


def test_nested_vmaps_are_one_call_of_whole_batches():
    x = jnp.arange(24.0).reshape(2, 3, 4)
    result = jax.ShapeDtypeStruct((4,), jnp.float32)
    SHAPES.clear()
    found = jax.jit(jax.vmap(jax.vmap(lambda row: NOTED(result, row, 1.0))))(x)
    np.testing.assert_array_equal(found, 2 * x + 1)
    assert SHAPES == [((2, 3, 4), (2, 3))]


@pytest.mark.parametrize(
    "dtype", [bool, "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32"]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_numbers_of_every_type_and_shape_arrive_as_they_are(dtype, shape):
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, shape), dtype)
    found = jax.jit(lambda x: FIRST(jax.ShapeDtypeStruct(x.shape, x.dtype), x))(x)
    np.testing.assert_array_equal(found, x)
    assert found.dtype == x.dtype


def test_an_exception_is_the_error_of_the_program():
    program = jax.jit(lambda x: FAILING(jax.ShapeDtypeStruct((), jnp.float32), x))
    with pytest.raises(jax.errors.JaxRuntimeError, match="IndexError"):
        program(1.0)


def test_python_keeps_the_state_of_a_thread_from_call_to_call():
    """Else every call pays for a new state."""

    def loop(x):
        calls = jax.lax.fori_loop(
            0, 200, lambda _, n: MEET(jax.ShapeDtypeStruct((), n.dtype), n), 0.0
        )
        return (x @ x).sum(), calls  # a large product: XLA then works in a thread of its own

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(jax.jit(loop), jnp.ones((300, 300)))
        assert done.result()[1] == 200
    assert 1 <= len(STRANGERS) == len(set(STRANGERS))


def test_programs_in_several_threads_do_not_meet():
    def loop(x):
        return jax.lax.fori_loop(
            0, 300, lambda _, x: NOTED(jax.ShapeDtypeStruct((5,), x.dtype), x, 1.0) - x, x
        )

    starts = [jnp.full(5, float(start)) for start in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for start, found in zip(starts, pool.map(jax.jit(loop), starts), strict=True):
            np.testing.assert_array_equal(found, start + 300)


ANOTHER_PROCESS = """
import sys, jax, numpy as np
from jax import monitoring
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
from canary.environments.eco_ant import EcoAnt
seen = []
monitoring.register_event_listener(lambda event, **_: seen.append(event))
ant = EcoAnt(engine="native")
key = jax.random.key(0)
state = ant.reset(key)
count = seen.count("/jax/compilation_cache/cache_misses")
after = jax.jit(ant.step)(state, np.ones(8, np.float32), key)
print(seen.count("/jax/compilation_cache/cache_misses") - count, np.asarray(after.observation).sum())
"""


def test_a_program_is_kept_for_the_next_process(tmp_path):
    def run():
        return subprocess.run(
            [sys.executable, "-c", ANOTHER_PROCESS, tmp_path / "compiled"],
            env={"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(Path(canary.__file__).parents[1])},
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip

    first, second = run(), run()
    assert (first[0], second[0]) == ("1", "0")
    assert first[1] == second[1]
