"""One process at a time trains a run: it holds the file RUN/.lock (`filelock`).

The kernel gives the lock back when the process ends, however it ends. Nothing is ever written into
the file; the manifest says which process trains the run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from canary.errors import CanaryError
from canary.runs.files import cannot_write

NAME = ".lock"
PATIENCE_SECONDS = 1.0  # `is_held` takes the lock for an instant


@contextmanager
def held(run: Path, holder: str = "another process") -> Iterator[None]:
    """Hold a run, or raise a sentence that names its holder."""
    lock = FileLock(run / NAME)
    try:
        lock.acquire(timeout=PATIENCE_SECONDS)
    except Timeout:
        raise CanaryError(
            f"{run} is being trained by {holder}; wait for it or stop it first."
        ) from None
    except (OSError, NotImplementedError) as error:
        raise cannot_write(run / NAME, error) from error
    try:
        yield
    finally:
        try:
            (run / NAME).unlink(missing_ok=True)
        finally:
            lock.release()


def is_held(run: Path) -> bool:
    """Whether some process trains a run now."""
    if not (run / NAME).is_file():
        return False
    try:
        with FileLock(run / NAME).acquire(timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # a place that cannot be written to: nobody trains here
        return False
