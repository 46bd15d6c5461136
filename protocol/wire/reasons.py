"""Why a job was not accepted: one byte on chain, one sentence for people.

Codes never change meaning; new ones are appended. ``FRAUD`` names the only reasons that may cost a bond: an exact
mismatch of provenance, a sampling margin no honest engine gives, or a node's whole record at the stated budget.
"""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Reason codes as they stand in a revealed vote."""

    ACCEPTED = 0
    UNAVAILABLE = 1
    STALE_BEACON = 2
    WRONG_ROOT = 3
    SHAPE = 4
    WRONG_POLICY = 5
    WRONG_PROMPT = 6
    DUPLICATE = 7
    SAMPLING_FRAUD = 8
    SAMPLING_VOID = 9
    ENDING = 10
    ACTIVATIONS = 11
    LOGPROBS = 12
    UNITS = 13
    SEQUENCE = 14
    ABSTAIN = 0xFF


FRAUD = frozenset({Reason.WRONG_PROMPT, Reason.DUPLICATE, Reason.SAMPLING_FRAUD, Reason.SEQUENCE})

SENTENCES: dict[Reason, str] = {
    Reason.ACCEPTED: "every check passed",
    Reason.UNAVAILABLE: "the artifact could not be fetched from where the submission said",
    Reason.STALE_BEACON: "the signed beacon is not the hash of the round's opening block",
    Reason.WRONG_ROOT: "the artifact's root is not the one that was signed",
    Reason.SHAPE: "the artifact does not have the pinned schema, bounds or proofs",
    Reason.WRONG_POLICY: "the artifact names another round, job, node or checkpoint than the one assigned",
    Reason.WRONG_PROMPT: "a prompt is not the one that follows from the beacon",
    Reason.DUPLICATE: "the artifact was submitted before",
    Reason.SAMPLING_FRAUD: "a token differs from the seeded choice by more than any honest engine gives",
    Reason.SAMPLING_VOID: "a token differs from the seeded choice by more than the run tolerates",
    Reason.ENDING: "a completion ends where its finish reason says it cannot",
    Reason.ACTIVATIONS: "the activation proofs do not match the policy's hidden states",
    Reason.LOGPROBS: "the reported logprobs are not those of the policy",
    Reason.UNITS: "the claimed work units are not those of the verified tokens",
    Reason.SEQUENCE: "the node's settled jobs together show what no honest node's would at the stated budget",
    Reason.ABSTAIN: "the juror could not judge and abstained",
}
