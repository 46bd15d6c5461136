"""Verifiers by the name that a task set gives. To add one, implement `Verifier` and register it here."""

from __future__ import annotations

from protocol.environments.verifiers.grade import Verifier
from protocol.environments.verifiers.matching import ChoiceVerifier, ExactVerifier
from protocol.environments.verifiers.mathematics import MathVerifier
from protocol.environments.verifiers.programs import CodeVerifier
from protocol.environments.verifiers.reasoning import ReasoningVerifier
from protocol.errors import Misconfigured

VERIFIERS: dict[str, Verifier] = {
    "exact": ExactVerifier(),
    "choice": ChoiceVerifier(),
    "math": MathVerifier(),
    "code": CodeVerifier(),
    "reasoning-gym": ReasoningVerifier(),
}
"""Every verifier, by name: one for the whole process, which starts what it needs when it first grades."""


def verifier(name: str) -> Verifier:
    """Returns the verifier ``name``.

    Raises:
        Misconfigured: there is none of that name.
    """
    if name not in VERIFIERS:
        raise Misconfigured(f"unknown verifier {name!r}: expected one of {', '.join(sorted(VERIFIERS))}")
    return VERIFIERS[name]
