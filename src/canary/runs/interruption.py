"""Ctrl-C, and the signal that ends a process, as a wish that training heeds between two chunks."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible(announce: Callable[[], None]) -> Iterator[threading.Event]:
    """Ctrl-C asks for a stop after the current chunk; a second one stops at once (the last
    checkpoint stays good)."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        announce()

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
