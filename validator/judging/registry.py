"""The registered checks, in the order they are made. PURE.

The judge, the verdict's ranking, replays, the report for people and calibration all read ``CHECKS``. To add a check,
write its ``Check`` beside its functions and list it here; its bounds may be in ``Thresholds.further``, and it may bring
its reason with ``Reason.register``.
"""

from __future__ import annotations

from protocol.errors import Misconfigured
from protocol.wire.reasons import Reason
from protocol.wire.rules import Thresholds
from validator.judging.artifact_checks import ENDINGS, PROMPTS, PROVENANCE, SHAPE, UNITS
from validator.judging.check import Check
from validator.judging.numeric_checks import ACTIVATIONS, EXACTNESS, LOGPROBS, SAMPLING

RECORD = Check(
    name="record",
    sentence="the node's settled jobs together stay below the run's evidence bound",
    reasons=(Reason.SEQUENCE,),
    limits=lambda rules: f"{rules.sequential.bound:.2f}",
)
"""Made by ``validator.records`` from settled rounds."""

REWARDS = Check(
    name="rewards",
    sentence="the owner's rewards are those that the policy gives on the same prompts",
    reasons=(Reason.STEERED,),
    limits=lambda rules: f"{rules.sequential.bound:.2f}",
)
"""Made by ``validator.records`` from a juror's own samples."""

CHECKS: list[Check] = [
    PROVENANCE,
    SHAPE,
    PROMPTS,
    SAMPLING,
    EXACTNESS,
    ENDINGS,
    ACTIVATIONS,
    LOGPROBS,
    UNITS,
    RECORD,
    REWARDS,
]


def register(check: Check) -> None:
    """Adds a check defined elsewhere, made in the runs whose rules set its bounds.

    Raises:
        ValueError: the check has no bound of its own, or its name, a bound or a reason belongs to another check.
    """
    taken = {name for other in CHECKS for name in _names(other)} | set(Thresholds.model_fields)
    if not check.bounds:
        raise ValueError(f"invalid check {check.name!r}: expected a bound in Thresholds.further")
    if clashes := sorted(taken & _names(check)):
        raise ValueError(f"invalid check {check.name!r}: {', '.join(clashes)} belongs to another check")
    CHECKS.append(check)


def require_known(thresholds: Thresholds) -> None:
    """Raises ``Misconfigured`` if ``thresholds`` set a bound of a check that is not registered here."""
    known = {bound.name for check in CHECKS for bound in check.bounds}
    if unknown := sorted(thresholds.further.keys() - known):
        raise Misconfigured(f"unknown checks in the rules: {', '.join(unknown)}; install the version that has them")


def _names(check: Check) -> set[str]:
    return {check.name, *(bound.name for bound in check.bounds), *(reason.name for reason in check.reasons)}
