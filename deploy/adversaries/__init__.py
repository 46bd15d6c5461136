"""Workers that lie, for the local network and the tests. Each overrides one thing an honest worker does."""

from __future__ import annotations

from importlib import import_module

from protocol.errors import Misconfigured
from worker.daemon import Worker

ADVERSARIES = {
    "edited-answer": "edited_answer",
}
"""Name on the command line to module; each module's ``Adversary`` is the worker."""


def adversary(name: str) -> type[Worker]:
    """Returns the worker class of an adversary. ``Misconfigured`` lists the names where there is no such one."""
    if name not in ADVERSARIES:
        raise Misconfigured(f"there is no adversary {name!r}; choose from {', '.join(sorted(ADVERSARIES))}")
    kind: type[Worker] = import_module(f"deploy.adversaries.{ADVERSARIES[name]}").Adversary
    return kind
