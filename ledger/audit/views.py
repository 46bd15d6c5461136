"""The contracts' own views, pinned to one block, against the auditor's book."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from enum import Enum
from itertools import islice
from typing import Any

from ledger.audit.audit_state import AuditCheck, AuditSources, AuditState
from ledger.audit.report import Findings
from ledger.book import MemoryBook, known
from ledger.facts import Appeal, Checkpoint, Credit, Fact, Holding, Job, Membership, Node, Round, Run, RunTerms, Slot
from ledger.fold.committees import seats_of
from ledger.fold.nodes import seated_at
from ledger.fold.rounds import FROZEN, eligible_slots, needed_slots, serving_slots
from ledger.fold.runs import terms_at
from ledger.fold.treasury import admin_of, treasury_of
from protocol.chain.reading.contracts import Reader
from protocol.wire.assignments import jobs_in

VIEWS = AuditCheck("views", "the contracts' own views at the audited block are what the events say")

VIEWS_PER_REQUEST = 200
"""Calls sent in one round trip."""

WHILE_LIVE = {"slot_count", "eligible", "opened_at", "open_block", "close_block", "appealed", "appeals", *FROZEN[1:]}
"""Fields of a round that the contracts keep only until it ends, since its storage is reused; ``committee`` stays."""
APART = {"terms", "settled_batches", "assignments_hash", "revealing", "committed", "revealed", "abstained"}
"""Fields of a view that its fact does not have, or that are compared by themselves."""


class Views:
    """Compares one block's views with one book."""

    def __init__(self, reader: Reader, timestamp: int, book: MemoryBook, findings: Findings) -> None:
        self._timestamp = timestamp
        self._reader = reader
        self._book = book
        self._findings = findings

    def compare(self) -> None:
        """Compares all there is. Raises ``Unavailable`` where the RPC does not answer, or no longer knows the block."""
        self._credits()
        self._tokens()
        self._nodes()
        self._runs()
        self._checkpoints()
        self._rounds()
        self._appeals()
        self._treasury()

    def _credits(self) -> None:
        owners = list(self._book.all(Credit))
        for credit, balance in self._ask("Credits", "balanceOf", [(owner.owner,) for owner in owners], owners):
            self._equal("Credits.balanceOf", credit.owner, "balance", balance, credit.balance)
        locked = sum(run.escrow + run.reserved for run in self._book.all(Run))
        free = sum(credit.balance for credit in owners)
        self._value("Credits", "totalLocked", "credits", locked)
        self._value("Credits", "totalSupply", "credits", free + locked)

    def _tokens(self) -> None:
        holdings = list(self._book.all(Holding))
        for holding, balance in self._ask("Token", "balanceOf", [(each.holder,) for each in holdings], holdings):
            self._equal("Token.balanceOf", holding.holder, "tokens", balance, holding.tokens)
        supply = sum(holding.tokens for holding in holdings)
        self._value("Token", "totalSupply", "tokens", supply)

    def _nodes(self) -> None:
        nodes = list(self._book.all(Node))
        self._value("Registry", "nodeCount", "nodes", len(nodes))
        for node, view in self._ask("Registry", "nodeOf", [(node.node,) for node in nodes], nodes):
            self._fields("Registry.nodeOf", node.node, view, node)
        bonded = sum(node.bond for node in nodes)
        self._value("Registry", "totalBonded", "bonds", bonded)
        self._slots()

    def _slots(self) -> None:
        slots = list(self._book.all(Slot))
        count = self._slot_count()
        eligible = eligible_slots(self._book, count, self._timestamp)
        self._value("Registry", "slotCount", "slots", count)
        self._equal("Registry", "eligible", "slots", hex(self._reader.view("Registry", "eligible")), hex(eligible))
        asked = [(slot.slot,) for slot in slots]
        for slot, node in self._ask("Registry", "nodeAt", asked, slots):
            self._equal("Registry.nodeAt", slot.slot, "node", node, seated_at(self._book, slot.slot, self._timestamp))
        for slot, node in self._ask("Registry", "holderOf", asked, slots):
            self._equal("Registry.holderOf", slot.slot, "node", node, slot.node)
        for slot, (newcomer, until) in self._ask("Registry", "contestOf", asked, slots):
            self._equal("Registry.contestOf", slot.slot, "newcomer", newcomer, slot.newcomer)
            self._equal("Registry.contestOf", slot.slot, "until", until, slot.until)

    def _slot_count(self) -> int:
        return max((slot.slot + 1 for slot in self._book.all(Slot)), default=0)

    def _runs(self) -> None:
        runs = list(self._book.all(Run))
        self._value("Market", "runCount", "runs", len(runs))
        for run, view in self._ask("Market", "runOf", [(run.run,) for run in runs], runs):
            self._fields("Market.runOf", run.run, view, run)
            terms = terms_at(self._book, run.run, self._timestamp)
            self._fields("Market.runOf", run.run, view.terms, terms)
        for run, (view, effective_at) in self._ask("Market", "announcedOf", [(run.run,) for run in runs], runs):
            if run.announcements:
                announced = known(self._book, RunTerms, run.run, run.announcements)
                self._fields("Market.announcedOf", run.run, view, announced)
                self._equal("Market.announcedOf", run.run, "effective at", effective_at, announced.effective_at)
            else:
                self._equal("Market.announcedOf", run.run, "effective at", effective_at, 0)
        count = self._slot_count()
        needed = needed_slots(self._book, count, self._timestamp)
        asked = [(run.run, terms_at(self._book, run.run, self._timestamp).rules_hash) for run in runs]
        for run, (slots, least) in self._ask("Market", "jurorSlots", asked, runs):
            serving = serving_slots(self._book, run.run, count, self._timestamp)
            self._equal("Market.jurorSlots", run.run, "slots", hex(slots), hex(serving))
            self._equal("Market.jurorSlots", run.run, "least", least, needed)
        members = list(self._book.all(Membership))
        for member, word in self._ask("Market", "joinedAt", [(each.run, each.node) for each in members], members):
            self._equal("Market.joinedAt", (member.run, member.node), "rules hash", word, member.rules_hash)

    def _checkpoints(self) -> None:
        published = list(self._book.all(Checkpoint))
        keys = [(each.run, each.version) for each in published]
        for checkpoint, root in self._ask("Market", "manifestRootOf", keys, published):
            key = (checkpoint.run, checkpoint.version)
            self._equal("Market.manifestRootOf", key, "manifest root", root, checkpoint.manifest_root)

    def _rounds(self) -> None:
        rounds = list(self._book.all(Round))
        keys = [(each.round,) for each in rounds]
        self._value("Rounds", "roundCount", "rounds", len(rounds))
        for round_, view in self._ask("Rounds", "roundOf", keys, rounds):
            ended = round_.state in ("settled", "void")
            self._fields("Rounds.roundOf", round_.round, view, round_, besides=WHILE_LIVE if ended else ())
            self._batches(round_, view.settled_batches)
        for round_, seats in self._ask("Rounds", "seatsOf", keys, rounds):
            self._seats(round_, seats)

    def _batches(self, round_: Round, settled: int) -> None:
        """A batch of which every job was appealed is settled without an event: it may count already, or not yet."""
        jobs = jobs_in(round_.submitted & ~round_.appealed) if not round_.parent else ()
        silent = round_.batches - len({known(self._book, Job, round_.round, job).batch for job in jobs})
        least = round_.settled_batches.bit_count()
        expected = settled if least <= settled <= min(least + silent, round_.batches) else least
        self._equal("Rounds.roundOf", round_.round, "settled batches", settled, expected)

    def _appeals(self) -> None:
        appeals = list(self._book.all(Appeal))
        for appeal, view in self._ask("Rounds", "appealAt", [(appeal.appeal,) for appeal in appeals], appeals):
            self._fields("Rounds.appealAt", appeal.appeal, view, appeal)
        keys = [(appeal.round, appeal.job) for appeal in appeals]
        for appeal, number in self._ask("Rounds", "appealOf", keys, appeals):
            self._equal("Rounds.appealOf", (appeal.round, appeal.job), "appeal", number, appeal.appeal)

    def _treasury(self) -> None:
        pot, admin = treasury_of(self._book).balance, admin_of(self._book)
        self._value("Registry", "treasuryBalance", "tokens", pot)
        self._value("Admin", "treasury", "address", admin.treasury)
        self._value("Admin", "paused", "paused", admin.paused)

    def _seats(self, round_: Round, views: Sequence[Any]) -> None:
        seated = round_.state in ("voting", "tallied")
        seats = seats_of(self._book, round_.round, round_.attempt) if seated else ()
        jurors = tuple(seat.juror for seat in seats)
        self._equal("Rounds.seatsOf", round_.round, "jurors", tuple(view.node for view in views), jurors)
        for view, seat in zip(views, seats, strict=False):
            key = (round_.round, seat.juror)
            revealed = seat.state in ("revealed", "abstained")
            self._equal("Rounds.seatsOf", key, "revealed", view.revealed, revealed)
            self._equal("Rounds.seatsOf", key, "abstained", view.abstained, seat.state == "abstained")
            self._equal("Rounds.seatsOf", key, "accept", hex(view.accept), hex(seat.accept & round_.submitted))
            self._equal("Rounds.seatsOf", key, "fraud", hex(view.fraud), hex(seat.fraud & round_.submitted))

    def _ask(self, contract: str, function: str, arguments: Sequence[Any], about: Iterable[Any]) -> Iterable[Any]:
        asked, facts = iter(arguments), iter(about)
        while part := list(islice(asked, VIEWS_PER_REQUEST)):
            yield from zip(islice(facts, len(part)), self._reader.views(contract, function, part), strict=True)

    def _fields(self, subject: str, key: object, view: Any, fact: Fact, besides: Collection[str] = ()) -> None:
        """Compares every field of a view that its fact has, leaving out those in ``besides``."""
        for name in (field.name for field in fields(view) if field.name not in APART and field.name not in besides):
            value = getattr(view, name)
            stored = value.name.lower() if isinstance(value, Enum) else value
            self._equal(subject, key, name, stored, getattr(fact, name))

    def _value(self, contract: str, view: str, field: str, recomputed: object) -> None:
        """Compares a view without arguments."""
        self._equal(contract, view, field, self._reader.view(contract, view), recomputed)

    def _equal(self, subject: str, key: object, field: str, stored: object, recomputed: object) -> None:
        self._findings.equal("views", subject, key, field, stored, recomputed)


@VIEWS.compares
def _compare_views(audit: AuditState, sources: AuditSources) -> None:
    Views(sources.reader, sources.block.timestamp, audit.book, audit.findings).compare()


CHECKS = (VIEWS,)
