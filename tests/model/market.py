"""Runs, their escrow, who joined them, and their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from protocol.chain.structs import Consumption, MarketTerms, Role, RunTerms
from tests.model.money import Credits
from tests.model.registry import Registry
from tests.model.transaction import NO_HASH, NOBODY, Refused, Transaction

if TYPE_CHECKING:
    from tests.model.rounds import Rounds

MAX_COMMITTEE = 15
MAX_JOBS = 256


@dataclass(slots=True)
class Run:
    """``history`` holds all terms with the moment each took or takes effect, newest last, replaced ones dropped."""

    requester: str
    history: list[tuple[int, RunTerms]]
    rules: set[bytes]
    manifests: dict[int, bytes]
    closed: bool = False
    escrow: int = 0
    reserved: int = 0
    joined: dict[int, bytes] = field(default_factory=dict)
    serving: set[tuple[int, bytes]] = field(default_factory=set)
    """Validators, and the rules under which they serve."""
    strikes: dict[int, list[int]] = field(default_factory=dict)
    """When each strike was counted, by validator, from the first that counts."""
    struck_in: dict[int, int] = field(default_factory=dict)
    """The newest round that was a strike, by validator."""

    def terms(self, now: int) -> RunTerms:
        return [terms for since, terms in self.history if since <= now][-1]

    def drop(self, node: int) -> None:
        self.joined.pop(node, None)
        self.serving = {(validator, rules) for validator, rules in self.serving if validator != node}

    @property
    def version(self) -> int:
        return max(self.manifests)


class Market:
    """All runs."""

    rounds: Rounds

    def __init__(self, registry: Registry, credits: Credits, address: str, rounds: str, terms: MarketTerms) -> None:
        self.registry, self.credits, self.terms = registry, credits, terms
        self.address, self.rounds_address = address, rounds
        self.runs: dict[int, Run] = {}

    # Verbs of requesters

    def open(self, tx: Transaction, terms: RunTerms, manifest: bytes, uri: str) -> None:
        self._check(terms)
        if manifest == NO_HASH:
            raise Refused("BadTerms", "manifestRoot")
        run = Run(tx.sender, [(0, terms)], {terms.rules_hash}, {0: manifest})
        self.runs[len(self.runs) + 1] = run

    def fund(self, tx: Transaction, run: int, amount: int) -> None:
        funded = self._requested(tx, run)
        self._check_open(run)
        if amount == 0:
            raise Refused("ZeroAmount")
        self.credits.lock(tx.by(self.address), tx.sender, run, amount)
        funded.escrow += amount

    def close(self, tx: Transaction, run: int) -> None:
        self._requested(tx, run)
        self._check_open(run)
        self.runs[run].closed = True

    def refund(self, tx: Transaction, run: int, amount: int) -> None:
        refunded = self._requested(tx, run)
        if not refunded.closed:
            raise Refused("RunNotClosed", run)
        if amount == 0:
            raise Refused("ZeroAmount")
        self._take_escrow(run, amount)
        self.credits.unlock(tx.by(self.address), tx.sender, run, amount)

    def announce(self, tx: Transaction, run: int, terms: RunTerms) -> None:
        announced = self._requested(tx, run)
        self._check_open(run)
        self._check(terms)
        if terms.rules_hash in announced.rules:
            raise Refused("RulesUsedBefore", run, terms.rules_hash)
        announced.rules.add(terms.rules_hash)
        announced.history = [(since, old) for since, old in announced.history if since <= tx.now]
        announced.history.append((tx.now + self.terms.notice_seconds, terms))

    # Verbs of node owners and of trainers

    def join(self, tx: Transaction, run: int, node: int, rules_hash: bytes) -> None:
        joined = self.known(run)
        self._check_open(run)
        self._check_owner(tx, node)
        present = joined.terms(tx.now).rules_hash
        joining = self.registry.nodes[node]
        announced = joined.history[-1][1].rules_hash if joining.role == Role.VALIDATOR else present
        if rules_hash not in (present, announced):
            raise Refused("WrongRules", rules_hash, present)
        if joining.role == Role.VALIDATOR:
            if joining.retired_at:
                raise Refused("AlreadyRetired", node)
            if not self.registry.holds(joining):
                raise Refused("WaitsForSlot", node)
            strikes = self.strikes(joined, node, tx.now)
            if len(strikes) >= self.terms.max_strikes:
                raise Refused("StruckOut", run, node, strikes[0] + self.registry.terms.unbonding_delay)
            joined.serving.add((node, rules_hash))
        joined.joined[node] = rules_hash

    def leave(self, tx: Transaction, run: int, node: int) -> None:
        left = self.known(run)
        if not self._outlived(left, node, tx.now):
            self._check_owner(tx, node)
        left.drop(node)

    def _outlived(self, run: Run, node: int, now: int) -> bool:
        """Whether a validator serves a run that no later round of it can draw it in."""
        if node not in run.joined or self.registry.nodes[node].role != Role.VALIDATOR:
            return False
        offered = {run.terms(now).rules_hash, run.history[-1][1].rules_hash}
        return run.closed or not any((node, rules) in run.serving for rules in offered)

    def strike(self, tx: Transaction, run: int, round: int, node: int) -> None:
        self._only_rounds(tx)
        struck = self.runs[run]
        if round <= struck.struck_in.get(node, 0):
            return
        struck.struck_in[node] = round
        struck.strikes[node] = [*self.strikes(struck, node, tx.now), tx.now]
        if len(struck.strikes[node]) == self.terms.max_strikes:
            struck.drop(node)

    def publish(
        self, tx: Transaction, run: int, version: int, manifest: bytes, consumed: Sequence[Consumption]
    ) -> None:
        published = self.known(run)
        trainer = published.terms(tx.now).trainer
        if tx.sender != trainer:
            raise Refused("NotTrainer", run, trainer, tx.sender)
        if version <= published.version:
            raise Refused("VersionNotNext", version, published.version)
        if manifest == NO_HASH:
            raise Refused("BadTerms", "manifestRoot")
        published.manifests[version] = manifest
        for used in consumed:
            self.rounds.consume(tx.by(self.address), run, used.round, used.jobs)

    # Verbs of Rounds

    def reserve(self, tx: Transaction, run: int, round: int, amount: int) -> None:
        self._only_rounds(tx)
        self._take_escrow(run, amount)
        self.runs[run].reserved += amount

    def release(self, tx: Transaction, run: int, round: int, amount: int) -> None:
        self._only_rounds(tx)
        self.runs[run].reserved -= amount
        self.runs[run].escrow += amount

    def pay(self, tx: Transaction, run: int, round: int, node: int, owner: str, amount: int) -> None:
        self._only_rounds(tx)
        self.runs[run].reserved -= amount
        self.credits.earn(tx.by(self.address), owner, run, round, node, amount)

    def deposit(self, tx: Transaction, run: int, round: int, owner: str, amount: int) -> None:
        self._only_rounds(tx)
        self.credits.lock(tx.by(self.address), owner, run, amount)
        self.runs[run].reserved += amount

    def pay_out(self, tx: Transaction, run: int, round: int, to: str, amount: int) -> None:
        self._only_rounds(tx)
        self.runs[run].reserved -= amount
        self.credits.unlock(tx.by(self.address), to, run, amount)

    # What others ask

    def juror_slots(self, run: int, now: int) -> tuple[set[int], int]:
        """Slots that a round may draw, and how many of them it needs: a third of those that serve any run."""
        rules = self.runs[run].terms(now).rules_hash
        eligible = {slot: self.registry.slots[slot] for slot in self.registry.eligible(now)}
        serving = {slot for slot, node in eligible.items() if (node, rules) in self.runs[run].serving}
        anywhere = {node for any_run in self.runs.values() for node in any_run.joined}
        return serving, -(-sum(node in anywhere for node in eligible.values()) // 3)

    def strikes(self, run: Run, node: int, now: int) -> list[int]:
        """When those that count were counted: all of them, until an unbonding delay after the first."""
        strikes = run.strikes.get(node, [])
        return strikes if strikes and now < strikes[0] + self.registry.terms.unbonding_delay else []

    # Refusals

    def known(self, run: int) -> Run:
        if run not in self.runs:
            raise Refused("UnknownRun", run)
        return self.runs[run]

    def _requested(self, tx: Transaction, run: int) -> Run:
        requested = self.known(run)
        if tx.sender != requested.requester:
            raise Refused("NotRequester", run, requested.requester, tx.sender)
        return requested

    def _check_open(self, run: int) -> None:
        if self.runs[run].closed:
            raise Refused("RunIsClosed", run)

    def _check_owner(self, tx: Transaction, node: int) -> None:
        owner = self.registry.known(node).owner
        if tx.sender != owner:
            raise Refused("NotNodeOwner", node, owner, tx.sender)

    def _only_rounds(self, tx: Transaction) -> None:
        if tx.sender != self.rounds_address:
            raise Refused("NotRounds", tx.sender)

    def _take_escrow(self, run: int, amount: int) -> None:
        escrow = self.known(run).escrow
        if escrow < amount:
            raise Refused("EscrowTooSmall", run, escrow, amount)
        self.runs[run].escrow -= amount

    def _check(self, terms: RunTerms) -> None:
        """The first field that no run may have so."""
        appeals, attempts = terms.appeal_seats != 0, 4
        voting = attempts * (terms.draw_seconds + terms.commit_seconds + terms.reveal_seconds)
        longest = terms.work_seconds + voting + appeals * (terms.challenge_seconds + voting)
        share = terms.max_units * terms.price_per_unit
        seats_fit = terms.appeal_seats % 2 == 1 and terms.committee + 2 <= terms.appeal_seats <= MAX_COMMITTEE
        most = MAX_JOBS * share + (MAX_COMMITTEE + 3 * 7) * terms.juror_fee
        faults = (
            ("coordinator", terms.coordinator == NOBODY),
            ("trainer", terms.trainer == NOBODY),
            ("rulesHash", terms.rules_hash == NO_HASH),
            ("maxUnits", terms.max_units == 0),
            ("committee", terms.committee % 2 == 0 or terms.committee > MAX_COMMITTEE),
            ("workSeconds", terms.work_seconds == 0),
            ("drawSeconds", terms.draw_seconds == 0),
            ("commitSeconds", terms.commit_seconds < self.terms.min_commit_seconds),
            ("revealSeconds", terms.reveal_seconds < self.terms.min_reveal_seconds),
            ("jurorFee", terms.juror_fee < self.terms.min_juror_fee),
            ("pricePerUnit", share > self.rounds.terms.fraud_slash),
            ("challengeSeconds", (terms.challenge_seconds != 0) != appeals),
            ("appealSeats", appeals and not seats_fit),
            ("seconds", longest > self.terms.max_round_seconds),
            ("jurorFee", most >= 2**128),
        )
        for name, wrong in faults:
            if wrong:
                raise Refused("BadTerms", name)
