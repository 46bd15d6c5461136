"""Environments by the name that a run's rules give. To add one, implement `Environment` and register it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.environments.arithmetic import Arithmetic
from protocol.environments.environment import Environment
from protocol.environments.sums import AskedSums
from protocol.environments.task_set import TaskSet
from protocol.errors import Misconfigured
from protocol.wire.rules import TASKS

ENVIRONMENTS: dict[str, Callable[[Mapping[str, object]], Environment]] = {
    "arithmetic": Arithmetic.from_params,
    "sums": AskedSums.from_params,
    TASKS: TaskSet.from_params,
}
"""Every environment, by name: builds it from parameters, or raises `Misconfigured`."""


def environment(name: str, params: Mapping[str, object]) -> Environment:
    """Builds the environment ``name`` with ``params`` (a JSON object from the run's rules).

    Raises:
        Misconfigured: unknown name, unknown parameter, or invalid value.
    """
    build = ENVIRONMENTS.get(name)
    if build is None:
        raise Misconfigured(f"unknown environment {name!r}: expected one of {', '.join(sorted(ENVIRONMENTS))}")
    return build(params)
