"""Environments by the name a run gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Environment
from protocol.errors import Misconfigured

_ENVIRONMENTS: dict[str, Callable[[Mapping[str, object]], Environment]] = {"arithmetic": Arithmetic.from_params}


def environment(name: str, params: Mapping[str, object]) -> Environment:
    """Build the environment ``name`` under ``params`` (a JSON object, as a run carries it).

    Raises ``Misconfigured`` where the name, a parameter or its value is unknown.
    """
    build = _ENVIRONMENTS.get(name)
    if build is None:
        raise Misconfigured(f"there is no environment {name!r}: choose one of {', '.join(sorted(_ENVIRONMENTS))}")
    return build(params)
