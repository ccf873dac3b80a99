"""Environments that are stepped together: in this process, or shared by worker processes.

Canary resets every episode itself, with a seed of its own, so an environment's autoreset is never
used. Gymnasium's vector environments step every lane, need a process for each, and merge the
`info` that costs are read from, so they are not used either.
"""

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.export.numpy_policy import environment_action, observation_rows
from canary.host.recipe import SIX_VALUES, Recipe, cost_reader, make_environment
from canary.host.references import describe
from canary.host.spaces import describe_spaces

TAIL = 4  # entries of a result after the observation: reward, cost, terminated, truncated
Lanes = Sequence[int]
Results = Float[np.ndarray, "lane result"]


class Player:
    """One environment. Actions and observations are as the environment itself has them."""

    def __init__(self, recipe: Recipe):
        self.environment = make_environment(recipe)
        self.steps = 0  # of the current episode, with the one under way
        self._cost = None if recipe.cost == SIX_VALUES else cost_reader(recipe.cost)
        self._values = 6 if self._cost is None else 5
        self._step = self.environment.step  # looking it up takes as long as a small step

    def reset(self, seed: int) -> tuple[Any, ...]:
        self.steps = 0
        answer = self.environment.reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise CanaryError("reset() must return two values, the observation and info")
        self._seen = answer[0]
        return self._seen, 0.0, 0.0, False, False

    def step(self, action: Any) -> tuple[Any, ...]:
        """Observation, reward, cost, terminated, truncated."""
        self.steps += 1
        answer = self._step(action)
        if len(answer) != self._values:
            raise CanaryError(
                f"step() returned {len(answer)} values, not {self._values}; cost='{SIX_VALUES}' is "
                "for environments whose step returns six, with the cost third"
            )
        if self._cost is None:
            seen, reward, cost, terminated, truncated, _ = answer
        else:
            seen, reward, terminated, truncated, info = answer
            cost = self._cost(self._seen, action, seen, info)
        self._seen = seen
        try:
            return seen, float(reward), float(cost), bool(terminated), bool(truncated)
        except (TypeError, ValueError):
            raise CanaryError(
                f"the reward is {reward!r} and the cost {cost!r}; both must be numbers"
            ) from None


class Row:
    """Environments in this process, one per lane."""

    def __init__(self, recipe: Recipe, lanes: Lanes):
        self._label, self.players = recipe.label, {lane: Player(recipe) for lane in lanes}
        first = self.players[lanes[0]].environment
        self.interface = describe_spaces(first.observation_space, first.action_space, self._label)
        self.observation_size = sum(entry["size"] for entry in self.interface["observation"])

    def reset(self, lanes: Lanes, seeds: Sequence[int], actions: Sequence[np.ndarray]) -> Results:
        """Start an episode in each of these lanes and replay its actions; the results of the last
        step, or of the reset."""
        results = []
        for lane, seed, past in zip(lanes, seeds, actions, strict=True):
            try:
                result = self.players[lane].reset(seed)
                for action in self._decode(past):
                    if not any(result[-2:]):  # own randomness may end an episode earlier
                        result = self.players[lane].step(action)
            except Exception as error:
                raise self._failure(lane, error) from error
            results.append(result)
        return self._joined(results)

    def step(self, lanes: Lanes, actions: Float[np.ndarray, "lane action"]) -> Results:
        """One step in each of these lanes."""
        results = []
        try:
            for lane, action in zip(lanes, self._decode(actions), strict=True):
                results.append(self.players[lane].step(action))
        except Exception as error:
            raise self._failure(lanes[len(results)], error) from error
        return self._joined(results)

    def close(self) -> None:
        for player in self.players.values():
            player.environment.close()

    # Rows are converted together: a small array takes as long to convert as a small step.

    def _decode(self, actions: Float[np.ndarray, "row action"]) -> Any:
        is_counted = self.interface["action"]["kind"] == "counted"
        return environment_action(actions[:, 0] if is_counted else actions, self.interface)

    def _joined(self, results: list[tuple[Any, ...]]) -> Results:
        observations, *tail = zip(*results, strict=True)
        joined = np.empty((len(results), self.observation_size + TAIL), np.float32)
        try:
            joined[:, :-TAIL] = observation_rows(observations, self.interface)
        except ValueError as error:
            raise CanaryError(
                f"{self._label} failed: an observation does not fit observation_space. {error}"
            ) from None
        joined.T[-TAIL:] = tail
        return joined

    def _failure(self, lane: int, error: Exception) -> CanaryError:
        reason = str(error) if isinstance(error, CanaryError) else describe(error)
        steps = self.players[lane].steps
        when = f"in step {steps} of its episode" if steps else "while it was reset"
        return CanaryError(f"{self._label} failed in lane {lane} {when}: {reason}.")


class Workers:
    """The same in worker processes, with neighbouring lanes in each; all of them step at once. A
    worker ends when its pipe is closed, so none outlives this process, however it dies."""

    def __init__(self, recipe: Recipe, lanes: int, workers: int):
        context = multiprocessing.get_context("spawn")  # a fork would copy JAX's locks
        self._label, self._workers = recipe.label, []
        for share in np.array_split(np.arange(lanes), min(workers, lanes)):
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
    """Answer requests until the pipe is closed; the answer to one that fails is its message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which closes the pipe
    row: Row | None = None
    with suppress(EOFError, OSError):
        while True:
            method, arguments = pipe.recv()
            try:
                row = row or Row(recipe, lanes)
                pipe.send(getattr(row, method)(*arguments))
            except CanaryError as error:
                pipe.send(str(error))
    if row is not None:
        row.close()
