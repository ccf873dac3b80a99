"""Rows of environments that are stepped together: in this process, or shared by worker processes.

Not Gymnasium's vector environments: those step every lane, need a process for each, and merge the
`info` that costs are read from. A worker ends when its pipe is closed, so none outlives this
process, however it dies.
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
Results = Float[np.ndarray, "lane result"]


class LocalRow:
    """Environments in this process, one per lane."""

    def __init__(self, recipe: Recipe, lanes: Lanes):
        self._players = {lane: Player(recipe) for lane in lanes}
        self._first = self._players[lanes[0]]

    def reset(self, lanes: Lanes, seeds: Sequence[int], actions: Sequence[np.ndarray]) -> Results:
        """Start an episode in each of these lanes and replay its actions; the results of the last
        step, or of the reset."""
        results = []
        for lane, seed, past in zip(lanes, seeds, actions, strict=True):
            player = self._players[lane]
            try:
                result = player.reset(seed), (0.0, 0.0, False, False)
                for action in player.decode(past):
                    if not any(result[1][2:]):  # own randomness may end an episode earlier
                        result = player.step(action)
            except Exception as error:
                raise _failure(player, lane, error) from error
            results.append(result)
        return self._joined(results)

    def step(self, lanes: Lanes, actions: Float[np.ndarray, "lane action"]) -> Results:
        """One step in each of these lanes."""
        players, results = self._players, []
        try:
            for lane, action in zip(lanes, self._first.decode(actions), strict=True):
                results.append(players[lane].step(action))
        except Exception as error:
            lane = lanes[len(results)]
            raise _failure(players[lane], lane, error) from error
        return self._joined(results)

    def _joined(self, results: list[tuple[Any, Any]]) -> Results:
        observations, tails = zip(*results, strict=True)
        joined = np.empty((len(tails), self._first.observation_size + TAIL), np.float32)
        joined[:, :-TAIL] = self._first.encode(observations)
        joined[:, -TAIL:] = tails
        return joined

    def close(self) -> None:
        for player in self._players.values():
            player.environment.close()


def _failure(player: Player, lane: int, error: Exception) -> CanaryError:
    reason = str(error) if isinstance(error, CanaryError) else describe(error)
    when = f"in step {player.steps} of its episode" if player.steps else "while it was reset"
    return CanaryError(f"{player.label} failed in lane {lane} {when}: {reason}.")


class WorkerRow:
    """Environments in worker processes, with neighbouring lanes in each. All workers step at once."""

    def __init__(self, recipe: Recipe, lanes: int, workers: int):
        context = multiprocessing.get_context("spawn")  # a fork would copy JAX's locks
        self._label, self._workers = recipe.label, []
        for share in np.array_split(np.arange(lanes), workers):
            pipe, its_end = context.Pipe()
            work = its_end, recipe, share.tolist()
            process = context.Process(target=_serve, args=work, daemon=True)
            process.start()
            its_end.close()
            self._workers.append((pipe, process, set(work[-1])))

    def reset(self, *arguments: Any) -> Results:
        return self._ask("reset", *arguments)

    def step(self, *arguments: Any) -> Results:
        return self._ask("step", *arguments)

    def _ask(self, method: str, *given: Sequence[Any]) -> Results:
        """Ask every worker that has some of the lanes, which ascend, then wait for all of them."""
        asked, answers = [], []
        for pipe, process, own in self._workers:
            if part := [each for each in zip(*given, strict=True) if each[0] in own]:
                with suppress(OSError):  # a dead worker is reported by its answer
                    pipe.send((method, [*zip(*part, strict=True)]))
                asked.append((pipe, process))
        for pipe, process in asked:
            try:
                answers.append(pipe.recv())
            except (EOFError, OSError):
                process.join()
                code = process.exitcode
                answers.append(f"{self._label} failed: a worker process ended with code {code}.")
        if problems := [answer for answer in answers if isinstance(answer, str)]:
            raise CanaryError(problems[0])
        return np.concatenate(answers)

    def close(self) -> None:
        for pipe, _, _ in self._workers:
            pipe.close()
        for _, process, _ in self._workers:
            process.join(5)
            process.kill()
            process.join()


def _serve(pipe: Any, recipe: Recipe, lanes: Lanes) -> None:
    """What a worker does until its pipe is closed; a failure is answered by its sentence."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which closes the pipe
    row: LocalRow | None = None
    with suppress(EOFError, OSError):
        while True:
            method, arguments = pipe.recv()
            try:
                row = row or LocalRow(recipe, lanes)
                pipe.send(getattr(row, method)(*arguments))
            except CanaryError as error:
                pipe.send(str(error))
    if row is not None:
        row.close()
