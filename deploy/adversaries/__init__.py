"""Workers that lie and validators that condemn, for the local network, the tests and the zoo.

A worker that cheats is the real daemon with another ``Producer``; each overrides the steps it does otherwise.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from protocol.errors import Misconfigured

if TYPE_CHECKING:
    from validator.daemon import Validator
    from worker.producer import Producer

ADVERSARIES = {
    "edited-answer": "edited_answer.EditedAnswer",
}
"""Workers. Name on the command line to module and class."""

FAULTY_VALIDATORS = {
    "condemns-honest": "condemns_honest.Adversary",
}
"""Validators, likewise."""


def adversary(name: str) -> type[Producer]:
    """Returns the producer of a worker that cheats. ``Misconfigured`` lists the names where there is no such one."""
    if name not in ADVERSARIES:
        raise Misconfigured(f"there is no adversary {name!r}; choose from {', '.join(sorted(ADVERSARIES))}")
    kind: type[Producer] = _named(ADVERSARIES[name])
    return kind


def faulty_validator(name: str) -> type[Validator]:
    """Returns the class of a faulty validator, one of ``FAULTY_VALIDATORS``."""
    kind: type[Validator] = _named(FAULTY_VALIDATORS[name])
    return kind


def _named(place: str) -> type:
    module, _, name = place.partition(".")
    kind: type = getattr(import_module(f"deploy.adversaries.{module}"), name)
    return kind
