"""Workers that lie and validators that condemn, for the local network and the tests.

Each overrides one thing an honest node does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from protocol.errors import Misconfigured

if TYPE_CHECKING:
    from validator.daemon import Validator
    from worker.daemon import Worker

ADVERSARIES = {
    "edited-answer": "edited_answer",
}
"""Workers. Name on the command line to module; each module's ``Adversary`` is the worker."""

FAULTY_VALIDATORS = {
    "condemns-honest": "condemns_honest",
}
"""Validators, likewise."""


def adversary(name: str) -> type[Worker]:
    """Returns the worker class of an adversary. ``Misconfigured`` lists the names where there is no such one."""
    if name not in ADVERSARIES:
        raise Misconfigured(f"there is no adversary {name!r}; choose from {', '.join(sorted(ADVERSARIES))}")
    kind: type[Worker] = import_module(f"deploy.adversaries.{ADVERSARIES[name]}").Adversary
    return kind


def faulty_validator(name: str) -> type[Validator]:
    """Returns the class of a faulty validator, one of ``FAULTY_VALIDATORS``."""
    kind: type[Validator] = import_module(f"deploy.adversaries.{FAULTY_VALIDATORS[name]}").Adversary
    return kind
