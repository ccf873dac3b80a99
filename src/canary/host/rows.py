"""Rows of environments that are stepped together: in this process, or shared by worker processes.

A worker ends when its pipe is closed, so none outlives this process, however it dies.
"""

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.host.player import Player, Recipe
from canary.host.references import describe

TAIL = 4  # entries of a result after the observation: reward, cost, terminated, truncated
Lanes = Sequence[int]


class LocalRow:
    """Environments in this process, one per lane."""

    def __init__(self, recipe: Recipe, lanes: Lanes):
        self._players = {lane: Player(recipe) for lane in lanes}
        self._first = self._players[lanes[0]]

    def reset(
        self, lanes: Lanes, seeds: Sequence[int], actions: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "lane result"]:
        """Start an episode in each of these lanes and replay its actions; the results of the last
        step, or of the reset."""
        observations, tails = [], []
        for lane, seed, past in zip(lanes, seeds, actions, strict=True):
            player = self._players[lane]
            try:
                observation, tail = player.reset(seed), (0.0, 0.0, False, False)
                for action in player.actions(past) if len(past) else ():
                    if not (tail[2] or tail[3]):  # one with randomness of its own may end earlier
                        observation, tail = player.step(action)
            except Exception as error:
                raise _failure(player, lane, error) from error
            observations.append(observation)
            tails.append(tail)
        return self._results(lanes, observations, tails)

    def step(
        self, lanes: Lanes, actions: Float[np.ndarray, "lane action"]
    ) -> Float[np.ndarray, "lane result"]:
        """One step in each of these lanes."""
        players, observations, tails = self._players, [], []
        try:
            for lane, action in zip(lanes, self._first.actions(actions), strict=True):
                observation, tail = players[lane].step(action)
                observations.append(observation)
                tails.append(tail)
        except Exception as error:
            lane = lanes[len(tails)]
            raise _failure(players[lane], lane, error) from error
        return self._results(lanes, observations, tails)

    def _results(self, lanes: Lanes, observations: list[Any], tails: list[Any]) -> np.ndarray:
        first = self._first
        results = np.empty((len(lanes), first.observation_size + TAIL), np.float32)
        try:
            results[:, :-TAIL] = first.encode(observations)
        except Exception:
            for lane, observation in zip(lanes, observations, strict=True):
                try:  # which one is it?
                    first.encode([observation])
                except Exception as error:
                    raise _failure(self._players[lane], lane, error) from error
            raise
        results[:, -TAIL:] = tails
        return results

    def close(self) -> None:
        for player in self._players.values():
            player.close()


def _failure(player: Player, lane: int, error: Exception) -> CanaryError:
    reason = str(error) if isinstance(error, CanaryError) else describe(error)
    when = f"in step {player.steps} of its episode" if player.steps else "while it was reset"
    return CanaryError(f"{player.label} failed in lane {lane} {when}: {reason}.")


class WorkerRow:
    """Environments in worker processes: lane i is in worker i mod n. All workers step at once."""

    def __init__(self, recipe: Recipe, lanes: int, workers: int):
        context = multiprocessing.get_context("spawn")  # a fork would copy JAX's locks
        self._label, self._pipes, self._processes = recipe.label, [], []
        for index in range(workers):
            pipe, its_end = context.Pipe()
            work = (its_end, recipe, range(index, lanes, workers))
            self._processes.append(context.Process(target=_serve, args=work, daemon=True))
            self._processes[-1].start()
            its_end.close()
            self._pipes.append(pipe)

    def reset(
        self, lanes: Lanes, seeds: Sequence[int], actions: Sequence[np.ndarray]
    ) -> Float[np.ndarray, "lane result"]:
        return self._ask("reset", lanes, seeds, actions)

    def step(
        self, lanes: Lanes, actions: Float[np.ndarray, "lane action"]
    ) -> Float[np.ndarray, "lane result"]:
        return self._ask("step", lanes, actions)

    def _ask(self, method: str, lanes: Lanes, *given: Any) -> np.ndarray:
        """Ask every worker that has some of the lanes, then wait for all of them."""
        home = np.asarray(lanes) % len(self._pipes)
        places = {
            index: np.flatnonzero(home == index).tolist() for index in np.unique(home).tolist()
        }
        for index, some in places.items():
            arguments = [[each[place] for place in some] for each in (lanes, *given)]
            with suppress(OSError):  # a dead worker is reported by its answer
                self._pipes[index].send((method, arguments))
        answers = {index: self._answer(index, lanes[some[0]]) for index, some in places.items()}
        for answer in answers.values():
            if isinstance(answer, str):
                raise CanaryError(answer)
        width = next(iter(answers.values())).shape[1]
        results = np.empty((len(lanes), width), np.float32)
        for index, some in places.items():
            results[some] = answers[index]
        return results

    def _answer(self, index: int, lane: int) -> Any:
        """Its results, or a sentence about its failure."""
        try:
            return self._pipes[index].recv()
        except (EOFError, OSError):
            process = self._processes[index]
            process.join()
            return (
                f"{self._label} failed: the worker process of lane {lane} ended with code "
                f"{process.exitcode}."
            )

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)
            process.kill()
            process.join()


def _serve(pipe: Any, recipe: Recipe, lanes: Lanes) -> None:
    """What a worker does until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which closes the pipe
    row: LocalRow | None = None
    with suppress(EOFError, OSError):
        while True:
            method, arguments = pipe.recv()
            try:
                row = row or LocalRow(recipe, lanes)
                if method == "step":
                    arguments[1] = np.asarray(arguments[1])
                pipe.send(getattr(row, method)(*arguments))
            except CanaryError as error:
                pipe.send(str(error))
    if row is not None:
        row.close()


def open_row(recipe: Recipe, lanes: int, workers: int) -> LocalRow | WorkerRow:
    workers = min(workers, lanes)
    return WorkerRow(recipe, lanes, workers) if workers else LocalRow(recipe, range(lanes))
