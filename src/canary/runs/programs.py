"""Compiled programs that this process keeps, for JAX keeps none that calls the host.

They are found again by what was traced: the whole text of the program, its options and its device.
In that text a call of the host is a number only, so it says which program it is where every such
call goes to the functions of `canary.host.calls`, which are the same for all environments; not
where an environment brings functions of its own.
"""

import hashlib
from collections import OrderedDict
from typing import Any

from canary.environments.gymnasium_environment import GymnasiumEnvironment

MOST = 8  # programs; the one that was not used for longest gives way
_kept: OrderedDict[tuple[str, Any], Any] = OrderedDict()


def compiled(lowered: Any, environment: Any, device: Any) -> Any:
    """The program, compiled, or one that was compiled before and is the same."""
    if type(environment) is not GymnasiumEnvironment:
        return lowered.compile()
    key = hashlib.sha256(lowered.as_text().encode()).hexdigest(), device
    if key not in _kept:
        _kept[key] = lowered.compile()
    _kept.move_to_end(key)
    while len(_kept) > MOST:
        _kept.popitem(last=False)
    return _kept[key]
