"""A sentence for an environment whose Python callback fails inside a program."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

import jax

from canary.environments.protocol import Environment
from canary.environments.settings import name_of_environment
from canary.errors import CanaryError


@contextmanager
def explain_failures(environment: Environment) -> Iterator[None]:
    """Raise a sentence if a callback of the environment fails in a program. Wait for the results of
    the program inside."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if (sentence := callback_failure(error, name_of_environment(environment))) is None:
            raise
        raise CanaryError(sentence) from error


def callback_failure(error: Exception, name: str) -> str | None:
    """The sentence about a program that ended because a Python callback of the environment raised
    (`jax.pure_callback`); None if it ended for another reason."""
    text = str(error)
    if "error calling callback" not in text and "callback failed" not in text.lower():
        return None
    lines = text.rpartition("Traceback (most recent call last):")[2].splitlines()
    what = next((line for line in lines if line[:1].strip()), lines[0]).rstrip(".")
    places = re.findall(r'^ +File "(.+)", line (\d+)', "\n".join(lines), re.MULTILINE)
    own = [place for place in places if "site-packages" not in place[0]]
    where = f" at {PurePath(own[-1][0]).name}:{own[-1][1]}" if own else ""
    return f"A Python callback of {name} failed: {what[:300]}{where}."
