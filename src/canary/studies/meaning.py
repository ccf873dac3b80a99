"""When two settings are the same: compared by what they mean to the numbers of a seed, not letter by letter.

An option that did not exist when a unit was made counts as its default, which is what the older code did. Left out are
the seeds, the name of the preset, and how the work is cut into programs and checkpoints, which no result depends on.
"""

import hashlib
import json
from typing import Any

from canary.config.config import RunConfig, config_from_dict, config_to_dict
from canary.environments import ENVIRONMENTS
from canary.errors import CanaryError

WITHOUT_INFLUENCE = ("seeds", "chunk", "checkpoint_seconds", "seeds_per_device")


def meaning(config: RunConfig) -> str:
    """A text that is equal for equal settings."""
    plain = config_to_dict(config)
    training = {key: value for key, value in plain["training"].items() if key not in WITHOUT_INFLUENCE}
    del plain["preset"]
    return json.dumps(plain | {"training": training}, sort_keys=True)


def meaning_of(stored: dict[str, Any]) -> str | None:
    """The same of a stored configuration; None if this version of canary cannot read it."""
    try:
        name = stored["environment"]["name"]
        return meaning(config_from_dict(stored)) if name in ENVIRONMENTS else None
    except (CanaryError, KeyError, TypeError):
        return None


def short_key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
