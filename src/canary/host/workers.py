"""A stage whose slots live in worker processes: slot i in worker i mod n, all workers at once.

A worker ends when its standard input does, so none outlives this process, however it dies.
"""

import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.host.player import Player, Recipe
from canary.host.references import name_of
from canary.host.stage import SlotFailed
from canary.host.worker import REPLY, REQUEST, read_exactly

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
TALK = 150e-6  # seconds that a round of messages takes, about
TRIED_STEPS = 20


def paying_workers(recipe: Recipe, player: Player, lanes: int) -> int:
    """How many worker processes shorten a step of so many lanes; 0 if this process is fastest, or
    the only way."""
    count = min(CORES, lanes)
    if count < 2 or portable(recipe) is None:
        return 0
    try:
        serial = lanes * seconds_per_step(player)
    except Exception:  # what fails here fails again where it is told
        return 0
    return count if serial / count + TALK < 0.8 * serial else 0


def seconds_per_step(player: Player) -> float:
    """A quick measurement with the middle action: the shortest of some steps, for others may use
    the processor too."""
    (action,), shortest = (
        player.actions(np.zeros((1, player.action_size), np.float32)),
        float("inf"),
    )
    player.reset(0)
    for _ in range(TRIED_STEPS):
        began = time.perf_counter()
        _, (_, _, terminated, truncated) = player.step(action)
        shortest = min(shortest, time.perf_counter() - began)
        if terminated or truncated:
            player.reset(0)
    return shortest


def portable(recipe: Recipe) -> dict[str, Any] | None:
    """The recipe as JSON data, if another process can import what it names."""
    make = recipe.make if isinstance(recipe.make, str) else name_of(recipe.make)
    cost = recipe.cost if isinstance(recipe.cost, str) else name_of(recipe.cost)
    if make is None or cost is None:
        return None
    order = {"make": make, "arguments": recipe.arguments, "cost": cost, "horizon": recipe.horizon}
    try:
        return json.loads(json.dumps(order))
    except TypeError:
        return None


class WorkerStage:
    """Slots in worker processes."""

    def __init__(self, recipe: Recipe, count: int, action_size: int):
        order = portable(recipe)
        assert order is not None
        self._action_size = action_size
        self._workers = [_Worker(order) for _ in range(count)]
        self._end = weakref.finalize(self, _close_all, self._workers)

    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> Float[np.ndarray, "row obs"]:
        return self._ask(b"r", slots, np.asarray(seeds, np.uint32)[:, None])

    def step(
        self, slots: Sequence[int], actions: Float[np.ndarray, "row action"]
    ) -> Float[np.ndarray, "row result"]:
        return self._ask(
            b"s", slots, np.asarray(actions, np.float32).reshape(len(slots), self._action_size)
        )

    def _ask(self, operation: bytes, slots: Sequence[int], bodies: np.ndarray) -> np.ndarray:
        """Send to every worker that has rows, then read from each: they work at the same time."""
        where = np.asarray(slots, np.int32)
        home = where % len(self._workers)
        shares = [
            (worker, np.flatnonzero(home == index)) for index, worker in enumerate(self._workers)
        ]
        shares = [(worker, rows) for worker, rows in shares if len(rows)]
        results: np.ndarray | None = None
        failure: SlotFailed | None = None
        for worker, rows in shares:
            worker.send(operation, where[rows], bodies[rows])
        for worker, rows in shares:
            try:
                values = worker.receive(len(rows))
            except SlotFailed as failed:
                failure = failure or SlotFailed(int(rows[failed.row]), failed.reason)
                continue
            if results is None:
                results = np.empty((len(where), values.shape[1]), np.float32)
            results[rows] = values
        if failure is not None:
            raise failure
        assert results is not None
        return results

    def close(self) -> None:
        """Also done when nobody holds the stage any more, and when Python ends."""
        self._end()


def _close_all(workers: list["_Worker"]) -> None:
    for worker in workers:
        worker.close()


class _Worker:
    """One process and its pipes; a call holds the lock from its request to its reply."""

    def __init__(self, order: dict[str, Any]):
        command = [sys.executable, "-m", "canary.host.worker"]
        source = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._lock = threading.Lock()
        self._broken = not self._write(
            json.dumps(order | {"path": sys.path, "directory": os.getcwd()}).encode() + b"\n"
        )

    def send(self, operation: bytes, slots: np.ndarray, bodies: np.ndarray) -> None:
        self._lock.acquire()
        header = REQUEST.pack(operation, len(slots), bodies.shape[1], 0)
        self._broken = not self._write(
            header + slots.tobytes() + np.ascontiguousarray(bodies).tobytes()
        )

    def receive(self, rows: int) -> np.ndarray:
        try:
            if self._broken:
                raise EOFError
            stream: Any = self._process.stdout
            status, first, second = REPLY.unpack(read_exactly(stream, REPLY.size))
            if status == 1:
                raise SlotFailed(first, read_exactly(stream, second).decode())
            return np.frombuffer(read_exactly(stream, 4 * first), np.float32).reshape(rows, -1)
        except (EOFError, OSError):
            raise SlotFailed(0, self._death()) from None
        finally:
            self._lock.release()

    def _write(self, data: bytes) -> bool:
        stream: Any = self._process.stdin
        try:
            stream.write(data)
            stream.flush()
        except (OSError, ValueError):
            return False
        return True

    def _death(self) -> str:
        code = self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"its worker process {how}"

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
