"""Reason codes: one byte on chain, one sentence for people.

Codes never change meaning, and new ones are appended. Only the reasons marked as fraud may cost a bond: an exact
mismatch of provenance, a sampling margin beyond any honest engine, or a node's record at the run's error budget.
"""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Verdict on one job as it appears in a revealed vote: code, sentence for people, and what it makes of the job.

    A reason votes fraud, or unavailable if the bytes that were signed could not be read, and void otherwise.
    """

    sentence: str
    fraud: bool
    unavailable: bool

    def __new__(cls, code: int, sentence: str = "", fraud: bool = False, unavailable: bool = False) -> Reason:
        """Makes one row of the table below; ``Reason(code)`` looks a code up in it."""
        reason = int.__new__(cls, code)
        reason._value_, reason.sentence, reason.fraud, reason.unavailable = code, sentence, fraud, unavailable
        return reason

    ACCEPTED = 0, "every check passed"
    UNAVAILABLE = 1, "the artifact could not be fetched from the submitted URI", False, True
    STALE_BEACON = 2, "the signed beacon is not the hash of the round's opening block"
    WRONG_ROOT = 3, "the bytes fetched do not hash to the signed root", False, True
    SHAPE = 4, "the artifact breaks the schema, its size limits or the form of its proofs"
    WRONG_POLICY = 5, "the artifact names another round, job, node or checkpoint than the one assigned"
    WRONG_PROMPT = 6, "a prompt differs from the one derived from the beacon", True
    DUPLICATE = 7, "the artifact was submitted before", True
    SAMPLING_FRAUD = 8, "a token differs from the seeded choice by more than any honest engine gives", True
    SAMPLING_VOID = 9, "a token differs from the seeded choice by more than the run tolerates"
    ENDING = 10, "a completion's ending contradicts its finish reason"
    ACTIVATIONS = 11, "the activation proofs do not match the policy's hidden states"
    LOGPROBS = 12, "the reported logprobs differ from the policy's"
    UNITS = 13, "the claimed work units differ from those of the verified tokens"
    SEQUENCE = 14, "the node's settled jobs together exceed the run's evidence bound for an honest node", True
    UNFIT_CHECKPOINT = 15, "the round's checkpoint is not one that the run's rules allow, which is its trainer's fault"
    INEXACT = 16, "the tokens or hidden states are not, to the bit, those of the run's determinism class"
    STEERED = 17, "its owner's rewards exceed those that the juror samples for the same prompts"
    ABSTAIN = 0xFF, "the juror could not judge and abstained"

    @classmethod
    def register(cls, code: int, name: str, sentence: str, fraud: bool = False) -> Reason:
        """Adds the reason of a check defined outside this table and returns it; ``Reason(code)`` finds it from then on.

        A process that has not registered the code reads it as unknown. Iterating ``Reason`` yields the table only.

        Raises:
            ValueError: the code is outside ``REGISTERED_CODES`` or already registered.
        """
        if code not in REGISTERED_CODES or code in _registered:
            raise ValueError(f"invalid reason code {code}: expected a free one of {REGISTERED_CODES}")
        reason = int.__new__(cls, code)
        reason._name_, reason._value_, reason.sentence, reason.fraud = name, code, sentence, fraud
        reason.unavailable = False
        return _registered.setdefault(code, reason)

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        return _registered.get(value) if isinstance(value, int) else None


REGISTERED_CODES = range(0x80, 0xFF)
"""Codes left to ``Reason.register``; the table above uses the codes below and ``ABSTAIN``."""

_registered: dict[object, Reason] = {}
