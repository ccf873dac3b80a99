"""Names of Python objects: `package.module:Name` to an object, and an object to its name."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canary.errors import CanaryError


def looks_up(text: str) -> bool:
    """Whether a text has the form package.module:Name."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(
        part.isidentifier() for part in (*module.split("."), *name.split("."))
    )


def look_up(text: str) -> Any:
    """The object that `package.module:Name` names, imported from the working directory or Python's
    path."""
    if not looks_up(text):
        raise CanaryError(f"{text!r} does not name Python code; write package.module:Name.")
    module_name, _, name = text.partition(":")
    if module_name.endswith(".py"):
        raise CanaryError(f"Name the module without .py: {module_name[:-3]}:{name}.")
    if "" not in sys.path:  # search the working directory, as for scripts
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise CanaryError(
            f"Importing {module_name} failed: there is no module {error.name!r}; install it, or run "
            "the command in the directory that holds it."
        ) from error
    except Exception as error:
        raise CanaryError(f"Importing {module_name} failed ({describe(error)}).") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CanaryError(f"The module {module_name} has no {name!r}.") from None
    return found


def name_of(thing: Any) -> str | None:
    """The name by which another process can import this function or class, or None."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if (
        module in (None, "__main__", "__mp_main__")
        or name is None
        or not looks_up(f"{module}:{name}")
    ):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is thing else None


def label_of(thing: str | Callable[..., Any]) -> str:
    """A name for messages; it may not be importable."""
    if isinstance(thing, str):
        return thing
    return f"{getattr(thing, '__module__', '?')}:{getattr(thing, '__qualname__', type(thing).__qualname__)}"


def describe(error: BaseException) -> str:
    """An error in a few words: its type, its message, and the last line of the user's code."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        frame = trace.tb_frame
        place = f" at {Path(frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    message = " ".join(str(error).split())
    return f"{type(error).__name__}{f': {message}' if message else ''}{place}"
