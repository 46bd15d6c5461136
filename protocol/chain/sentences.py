"""Sentences for the contracts' custom errors: what is wrong with the call, with its numbers, and how to mend it.

The placeholders are the error's parameters. ``:tokens`` shows an amount, ``:time`` a clock time, ``:jobs`` the jobs of
a bitmap; bytes are shown as 0x-hex, members of enums by their name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from protocol.amounts import tokens
from protocol.times import clock
from protocol.wire.assignments import jobs_in

_ONLY_CONTRACT = "only another of the contracts may call this, {caller} may not"

SENTENCES: Mapping[str, str] = {
    # Token
    "FaucetExhausted": "the faucet gives one address {cap:tokens} in all: {to} has taken {taken:tokens} and asks for "
    "{asked:tokens}",
    "ERC20InsufficientBalance": "{sender} has {balance:tokens} and needs {needed:tokens}; get tokens with: assize "
    "wallet drip",
    "ERC20InsufficientAllowance": "{spender} may take {allowance:tokens} and needs {needed:tokens}: approve it again",
    "ERC20InvalidReceiver": "invalid receiver {receiver}: nobody could use what it is sent",
    "ERC2612ExpiredSignature": "the permit's signature expired at {deadline:time}: sign a new one",
    # Admin
    "AlreadyPaused": "new rounds are paused already",
    "NotPaused": "new rounds are not paused",
    "NoTreasury": "invalid treasury: expected an address other than zero",
    "AccessControlUnauthorizedAccount": "{account} lacks the role for this: the admin grants it",
    # Registry
    "UnknownNode": "no node {node}; see them with: assize node list",
    "UnknownRole": "invalid role: expected worker or validator",
    "NotOwner": "node {node} belongs to {owner}: {caller} cannot change it; sign with its owner's keystore",
    "OwnerHasOtherRole": "{owner} has nodes as a {role}, and an owner has one role only: use another owner",
    "ZeroCapacity": "invalid capacity 0: expected at least 1 job in flight",
    "NotOneTicket": "invalid capacity {capacity} of a validator: expected 1",
    "NoFreeSlot": "all 256 slots for validators are taken: register again: it contests the one of the least bond",
    "SlotsFree": "a slot for validators is free: register again, which takes it",
    "TooManyContests": "sixteen slots are contested or changed hands within the unbonding delay: try again later",
    "WaitsForSlot": "node {node} waits for a slot: nothing changes until it has one, or is matched",
    "NotWaiting": "node {node} does not wait for a slot",
    "StillMatchable": "the holder of the slot may match the bond of node {newcomer} until {until:time}: try again then",
    "KeyInUse": "{key} was the key of node {node} before, and a key serves one node once: make another with: "
    "assize wallet new",
    "BadKeySignature": "the node key {key} did not sign this binding, {recovered} did: sign with the node's keystore",
    "SignatureExpired": "the signature expired at {deadline:time}, and it is {now:time}: sign again; check this "
    "machine's clock",
    "AlreadyRetired": "node {node} has retired",
    "NotRetired": "node {node} has not retired: retire it first with: assize node retire {node}",
    "AlreadyWithdrawn": "the bond of node {node} has been withdrawn",
    "AlreadyRevoked": "node {node} has no key: bind one with: assize node rotate",
    "StillBonded": "the bond of node {node} can be withdrawn from {withdrawableAt:time}, once its {inFlight} jobs in "
    "flight have ended",
    "NotListable": "node {node} cannot be listed now: it is retired, has no key, or its bond is too small",
    "OverCapacity": "node {node} has {inFlight} jobs in flight and its bond carries {capacity}",
    "AmountNotKept": "the token delivered {received:tokens} of {asked:tokens}: tokens that take a fee cannot be used",
    "ZeroAmount": "invalid amount 0: expected more",
    # Credits
    "CreditTooSmall": "{owner} has {have:tokens} in credits and needs {need:tokens}; buy more with: assize credits buy",
    "NoReceiver": "invalid receiver: expected an address other than zero",
    "NotBacked": "the award is not backed: the contract holds {held:tokens} for credits of {need:tokens}",
    # Market
    "UnknownRun": "no run {run}; see them with: assize run show",
    "RunIsClosed": "run {run} is closed: it takes no new rounds",
    "RunNotClosed": "run {run} is not closed: close it first with: assize run close {run}",
    "NotRequester": "run {run} belongs to {requester}: {caller} cannot change it; sign with its requester's keystore",
    "NotNodeOwner": "node {node} belongs to {owner}: {caller} cannot act for it; sign with its owner's keystore",
    "NotTrainer": "versions of run {run} are published by {trainer}, not by {caller}",
    "NotJoined": "node {node} has not joined run {run} at its present rules; join with: assize run join {run} {node}",
    "WrongRules": "the run has the rules {present}, not {given}: read them before joining",
    "RulesUsedBefore": "run {run} had the rules {rulesHash} before: new terms need rules that it never had",
    "StruckOut": "node {node} left run {run} for its strikes; it can join again from {until:time}",
    "EscrowTooSmall": "the escrow of run {run} holds {have:tokens} and needs {need:tokens}; add to it with: assize run "
    "fund {run}",
    "UnknownVersion": "run {run} has no version {version}",
    "VersionNotNext": "invalid version {given}: expected one after {present}",
    # Rounds: opening and submitting
    "NewRoundsPaused": "new rounds are paused by the network's pauser; open ones run to their end",
    "NotCoordinator": "rounds of this run are opened by {coordinator}, not by {caller}",
    "TooFewValidators": "{eligible} validators can be drawn and {need} are needed: wait until more have joined the run",
    "BadAssignments": "invalid assignments: expected 1 to 256 jobs in entries of 5 bytes",
    "WrongAssignments": "these are not the assignments of the round: their hash is {given}, not {stored}",
    "WrongState": "round {round} is {state}: this call comes too early or too late in its life",
    "TooEarly": "this can be done from {deadline:time}, and it is {now:time}",
    "TooLate": "this could be done until {deadline:time}, and it is {now:time}",
    "BatchCutOff": "the batch has {length} bytes and its parts need {need}",
    "TooManyLeaves": "the batch has {given} jobs: expected at most 64",
    "NothingTaken": "no part of the batch was taken, the first one for this reason: {reason}",
    # Rounds: judging
    "SeedNotReady": "the draw needs the hash of block {seedBlock}: try again in the next block",
    "NotSeated": "validator {juror} has no seat in round {round}",
    "AlreadyCommitted": "validator {juror} has committed its vote",
    "AlreadyRevealed": "validator {juror} has revealed its vote",
    "NotCommitted": "validator {juror} committed no vote, so it has none to reveal",
    "WrongReveal": "the vote revealed hashes to {given}, and {committed} was committed",
    "WrongReasons": "the vote has {given} reasons and needs {need}: one for each job not accepted",
    # Rounds: appeals, settlement and checkpoints
    "AppealsNotOffered": "the run of round {round} offers no appeals",
    "AlreadyAppealed": "job {job} of round {round} has been appealed",
    "NotSubmitted": "job {job} of round {round} was not submitted",
    "AlreadySettled": "batch {batch} is settled",
    "WrongBatch": "these are not the parts of batch {batch}: their hash is {given}, not {stored}",
    "NotFinished": "round {round} has {batches} batches to settle and {appeals} appeals to decide",
    "NotAccepted": "of round {round}, these jobs are not accepted: {jobs:jobs}",
    "AlreadyConsumed": "of round {round}, these jobs went into a checkpoint before: {jobs:jobs}",
    "WrongRun": "round {round} is not one of run {run}",
    # Traps
    "NoAppeals": "run {run} offers no appeals: nobody would pay for a missed trap",
    "BadTraps": "invalid {field} of the traps: expected leaves and a bounty above 0, a first round not open yet, and "
    "a deadline within 180 days",
    "UnknownSet": "no set {set} of traps",
    "WrongLeaf": "the leaf {leaf} is not in set {set}, or was opened before",
    "WrongKind": "a leaf of the kind {kind} cannot be opened so: decoys and traps are opened each in their own way",
    "NotTheTrap": "job {job} of round {round} is not the one that the leaf names",
    "NotFraud": "job {job} of round {round} is not fraud, or its verdict may still change, or its round is over",
    "TrainedOn": "a checkpoint was trained on job {job} of round {round}: it cannot be opened as a trap",
    "AlreadyOpened": "a trap was opened for job {job} of round {round} before",
    "RoundsAhead": "the decoy names rounds up to {to}, and {count} are opened: wait until then",
    # Deployment and calls between the contracts
    "SlashAboveBond": "a fraudulent job would cost {fraudSlash:tokens}, and its bond is {bondPerJob:tokens}",
    "BountyAboveSlash": "an appellant could gain {appealBounty:tokens}, and a fraudulent job costs {fraudSlash:tokens}",
    "WrongDeployment": "the contracts do not name one another: deploy them in their order",
    **dict.fromkeys(("NotMarket", "NotRegistry", "NotRounds"), _ONLY_CONTRACT),
}

TERMS: Mapping[str, str] = {
    "coordinator": "expected an address other than zero",
    "trainer": "expected an address other than zero",
    "rulesHash": "expected the hash of the run's rules, not zero",
    "manifestRoot": "expected the root of the model's manifest, not zero",
    "maxUnits": "expected more than 0",
    "committee": "expected an odd number of seats up to 15",
    "appealSeats": "expected an odd number up to 15, at least two more than the committee",
    "workSeconds": "expected more than 0",
    "drawSeconds": "expected more than 0",
    "commitSeconds": "expected at least the network's minimum",
    "revealSeconds": "expected at least the network's minimum",
    "jurorFee": "expected at least the network's minimum, and a round's reserve below 2**128 wei",
    "pricePerUnit": "a job may pay at most what a fraudulent one costs: lower price x max units",
    "challengeSeconds": "expected more than 0 with appeal seats, and 0 without",
    "seconds": "all windows, with four draws and an appeal with four of its own, must fit into the longest round",
    "maxRoundSeconds": "expected less than the unbonding delay",
    **dict.fromkeys(("minCommitSeconds", "minRevealSeconds", "maxStrikes"), "expected more than 0"),
}
"""The fields that ``BadTerms`` names."""


class _Shown:
    """An argument as a template shows it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __format__(self, form: str) -> str:
        if form == "tokens":
            return tokens(self.value)
        if form == "time":
            return clock(self.value)
        if form == "jobs":
            return ", ".join(map(str, jobs_in(self.value)))
        if isinstance(self.value, IntEnum):
            return self.value.name.lower().replace("_", " ")
        return "0x" + self.value.hex() if isinstance(self.value, bytes) else str(self.value)


def sentence(error: str, arguments: Mapping[str, Any]) -> str | None:
    """Returns the sentence for a custom error; None for one that no contract of ours raises."""
    if error == "BadTerms":
        field = str(arguments["field"])
        return f"invalid {field}: {TERMS.get(field, 'outside of what the network allows')}"
    template = SENTENCES.get(error)
    return None if template is None else template.format_map({name: _Shown(value) for name, value in arguments.items()})
