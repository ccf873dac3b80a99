"""Set up JAX before its first computation, and refuse settings that would change its numbers."""

import contextlib
import logging
import os
import warnings
from pathlib import Path

from canary.errors import CanaryError

# Other values change the numbers, so runs would not resume exactly and certificates not replay.
REQUIRED = {
    "jax_enable_x64": False,
    "jax_threefry_partitionable": True,
    "jax_default_prng_impl": "threefry2x32",
}


def prepare_devices() -> None:
    """Set up JAX; call this before it computes anything. JAX_PLATFORMS chooses the devices."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA's C++ log, read once when it loads
    logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
    import jax

    for name, value in REQUIRED.items():
        if (found := getattr(jax.config, name)) != value:
            raise CanaryError(
                f"JAX's setting {name} is {found!r}, but the numbers of a run need {value!r}: "
                f"unset {name.upper()}, or do not change it in Python."
            )
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = Path(home) / "canary" / "compiled"
        with contextlib.suppress(OSError):  # without a cache every start compiles again
            folder.mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    # On a CPU, programs run in the calling thread: waking another takes longer than acting
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if jax.default_backend() != "cpu":  # GPUs and TPUs would round factors to 10 or 8 bits
        jax.config.update("jax_default_matmul_precision", "highest")


def device_name() -> str:
    import jax

    device = jax.devices()[0]
    return f"{device.platform}: {device.device_kind}"
