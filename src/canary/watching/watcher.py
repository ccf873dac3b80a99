"""Who watches a run: the user's callback, and writers of logs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.constraints import Constraint
from canary.errors import CanaryError
from canary.watching.update import Update, updates_of
from canary.watching.writers import Writer, writer_named

Callback = Callable[[Update], bool | None]
"""Called after every update. Return False to stop there; the run is saved and can be resumed."""


class Watcher:
    """Passes the updates of a run on; use as a context while it trains."""

    def __init__(self, callback: Callback | None = None, log: Sequence[str] | str = ()):
        if callback is not None and not callable(callback):
            raise CanaryError(
                f"The callback must be a function of one update, not {callback!r:.60}."
            )
        self._callback = callback
        self._writers: list[Writer] = []
        self.log_to(log)

    def log_to(self, log: Sequence[str] | str) -> None:
        """The logs to write, by name; a missing package is found now."""
        self.log = tuple(dict.fromkeys([log] if isinstance(log, str) else log))
        self._openers = {name: writer_named(name) for name in self.log}

    @property
    def sees_every_update(self) -> bool:
        """Whether updates must be done one at a time, so that a stop takes effect after exactly the
        update it names."""
        return self._callback is not None

    def open(
        self, run: Path, about: dict[str, Any], constraint: Constraint, first: int, updates: int
    ) -> None:
        """Before the first update after `first`; `about` is the run's configuration with its name
        and tags."""
        self._run, self._constraint, self._updates = run, constraint, updates
        self._writers = [opener(run, about, first) for opener in self._openers.values()]

    def see(self, rows: pl.DataFrame, episodes: pl.DataFrame) -> bool:
        """Pass on the updates of a chunk; whether training shall go on."""
        if not self._writers and self._callback is None:
            return True
        goes_on = True
        for update in updates_of(
            rows, episodes, self._constraint, run=self._run, updates=self._updates
        ):
            for writer in self._writers:
                writer.write(update)
            if self._callback is not None:
                goes_on = _answer(self._callback(update)) and goes_on
        return goes_on

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers = []


def _answer(answer: Any) -> bool:
    if answer is None or isinstance(answer, bool | np.bool_):
        return answer is None or bool(answer)
    raise CanaryError(
        f"The callback returned {answer!r:.60}; return False to stop training, and None or True to "
        "go on."
    )
