"""A run whose verdicts are appealed, whose terms change, and whose keys are revoked, on a real chain, in chapters.

job 0   fraud, appealed by its worker      accepted: overturned, the first juror pays
job 1   accepted, trained on, appealed     fraud: overturned, tainted, the worker pays
job 2   void, appealed by its worker       void: upheld, the bond is lost
job 3   accepted, trained on, appealed     nobody draws: undecided, tainted
job 4   accepted, trained on               settled with its batch
job 5   never submitted
job 6   fraud, alone in its batch          two committees without a quorum: undecided, its own share pays the fees
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from protocol.chain.events import AppealOpened
from protocol.chain.structs import Consumption, Role, RunTerms, SettledLeaves, State, pack_parts, pack_submissions
from protocol.chain.writing import calls
from protocol.chain.writing.calls import Call
from protocol.node.wallet import Wallet
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.votes import vote_on
from tests.conftest import TOKEN
from tests.ledger.scenario import FEE, MAX_UNITS, PRICE, RULES, WINDOW, Market, Party, only, terms_of

OK, FRAUD, VOID, HIDDEN = Reason.ACCEPTED, Reason.SAMPLING_FRAUD, Reason.SHAPE, Reason.UNAVAILABLE
FIRST_VERDICT = {0: FRAUD, 1: OK, 2: VOID, 3: OK, 4: OK, 5: OK, 6: FRAUD}
NEW_TREASURY = "0x00000000000000000000000000000000000b0551"
NEW_RULES = b"\x22" * 32
NEW_PRICE = 3 * PRICE


@dataclass
class Dispute:
    """Who takes part, the round disputed, and its appeals by job."""

    market: Market
    requester: Wallet
    coordinator: Wallet
    trainer: Wallet
    rival: Wallet
    workers: tuple[Party, Party]
    validators: dict[int, Party]
    terms: RunTerms
    round: int = 0
    juror: int = 0
    assignments: bytes = b""
    batches: list[list[SettledLeaves]] = field(default_factory=list)
    appeals: dict[int, int] = field(default_factory=dict)

    def tick(self, function: str, *arguments: object) -> None:
        """Anyone's call of ``Rounds``."""
        self.market.send(self.coordinator, calls.call(self.market.deployment, "Rounds", function, *arguments))


def begin(market: Market) -> Dispute:
    """A run with appeals, two workers, four validators, a margin above each bond, and owners with credits."""
    requester, rival = market.rich("requester", "Credits"), market.rich("rival", "Credits")
    coordinator, trainer = market.make_wallet("coordinator"), market.make_wallet("trainer")
    workers = (market.register("careful", Role.WORKER, 8), market.register("hasty", Role.WORKER, 8))
    judges = [market.register(f"judge{index}", Role.VALIDATOR, 1) for index in range(4)]
    for party in (*workers, *judges):
        market.send(party.owner, calls.top_up(market.deployment, party.node, 3 * TOKEN))
    terms = replace(terms_of(coordinator, trainer), committee=1, appeal_seats=3, challenge_seconds=WINDOW)
    market.open_run(requester, terms, 100 * TOKEN)
    for party in (*workers, *judges):
        market.send(party.owner, calls.join(market.deployment, market.run, party.node, RULES))
    for worker in workers:
        market.send(worker.owner, calls.approve(market.deployment, "Credits", 10 * TOKEN))
        market.send(worker.owner, calls.buy(market.deployment, 10 * TOKEN))
    market.send(rival, calls.buy(market.deployment, 10 * TOKEN))
    validators = {judge.node: judge for judge in judges}
    return Dispute(market, requester, coordinator, trainer, rival, workers, validators, terms)


def condemn(dispute: Dispute) -> None:
    """The round up to its first verdict, and two checkpoints trained on it."""
    market, (careful, hasty) = dispute.market, dispute.workers
    dispute.assignments = pack_assignments([Listing(careful.node, 5), Listing(hasty.node, 3)])
    dispute.round = market.open_round(dispute.coordinator, dispute.assignments)
    parts = ((careful, range(5)), (hasty, [5, 6]))
    for worker, jobs in parts:
        leaves = pack_leaves([Leaf(job, MAX_UNITS - 3 + job, bytes([job + 1]) * 32) for job in jobs])
        submission = market.signed(dispute.round, worker, leaves)
        dispute.tick("submit", dispute.round, dispute.assignments, pack_submissions([submission]))
        dispute.batches.append([SettledLeaves(worker.node, leaves)])
    market.pass_time(WINDOW + 1)
    dispute.tick("close", dispute.round, dispute.assignments)
    dispute.tick("draw", dispute.round)
    (dispute.juror,) = judge(dispute, dispute.round, FIRST_VERDICT)
    publish(dispute, 1, 0b00010)
    publish(dispute, 2, 0b11000)


def publish(dispute: Dispute, version: int, jobs: int) -> None:
    """One checkpoint, trained on ``jobs`` of the round disputed."""
    consumed = [Consumption(dispute.round, jobs)] if jobs else []
    call = calls.publish(dispute.market.deployment, dispute.market.run, version, bytes([version]) * 32, consumed)
    dispute.market.send(dispute.trainer, call)


def judge(dispute: Dispute, number: int, judgements: Mapping[int, Reason], voting: int | None = None) -> list[int]:
    """The committee of a round or an appeal votes, its first ``voting`` seats only where given; returns its nodes."""
    market, vote = dispute.market, vote_on(judgements, b"\x07" * 32)
    view = market.chain.latest()
    nodes, attempt = [seat.node for seat in view.seats(number)], view.round(number).attempt
    for node in nodes[:voting]:
        market.commit(number, dispute.validators[node], vote, attempt)
    if voting is not None:
        market.pass_time(WINDOW + 1)
    for node in nodes[:voting]:
        market.reveal(number, dispute.validators[node], vote)
    if market.chain.latest().round(number).state is State.VOTING:
        dispute.tick("tally", number)
    return nodes


def dispute_all(dispute: Dispute) -> None:
    """Every appeal is opened within the window."""
    careful, hasty = (worker.owner for worker in dispute.workers)
    rival = dispute.rival
    for job, appellant in ((0, careful), (1, rival), (2, careful), (3, rival), (5, rival), (6, hasty)):
        batch = 1 if job > 4 else 0
        call = calls.appeal(dispute.market.deployment, dispute.round, job, batch, dispute.batches[batch])
        dispute.appeals[job] = only(dispute.market.send(appellant, call), AppealOpened).appeal


def hear(dispute: Dispute) -> None:
    """Five of the six appeals are tried, one of them four times without a quorum, one after its file was hidden."""
    for job, verdict in ((0, OK), (1, FRAUD), (2, VOID), (5, HIDDEN)):
        dispute.tick("draw", dispute.appeals[job])
        judge(dispute, dispute.appeals[job], {job: verdict})
    for _ in range(4):
        dispute.tick("draw", dispute.appeals[6])
        judge(dispute, dispute.appeals[6], {6: FRAUD}, voting=1)


def settle(dispute: Dispute) -> None:
    """The batches are settled while one appeal is still pending."""
    for batch in (1, 0):
        dispute.tick("settle", dispute.round, batch, dispute.assignments, pack_parts(dispute.batches[batch]))


def finish(dispute: Dispute) -> None:
    """The last appeal ends undecided, then the round."""
    dispute.market.pass_time(2 * WINDOW)
    dispute.tick("draw", dispute.appeals[3])
    publish(dispute, 5, 0)
    dispute.tick("finish", dispute.round, dispute.assignments)


def sweep_twice(dispute: Dispute) -> None:
    """Slashed bonds are swept to the old treasury, and after a withheld reveal to the new one."""
    market = dispute.market
    market.send(dispute.rival, calls.call(market.deployment, "Registry", "sweep"))
    as_admin(market, calls.call(market.deployment, "Admin", "setTreasury", NEW_TREASURY))
    round_ = market.open_round(dispute.coordinator, one_job(dispute))
    submit_one(dispute, round_)
    dispute.tick("draw", round_)
    (seat,) = market.chain.latest().seats(round_)
    market.commit(round_, dispute.validators[seat.node], vote_on({0: OK}, b"\x07" * 32))
    market.pass_time(2 * WINDOW + 1)
    dispute.tick("tally", round_)
    market.send(dispute.rival, calls.call(market.deployment, "Registry", "sweep"))


def one_job(dispute: Dispute) -> bytes:
    """The assignments of a round with one job, for the first worker."""
    return pack_assignments([Listing(dispute.workers[0].node, 1)])


def submit_one(dispute: Dispute, round_: int) -> list[SettledLeaves]:
    """Submits the job of such a round, which closes it; returns the batch."""
    worker, leaves = dispute.workers[0], pack_leaves([Leaf(0, MAX_UNITS, b"\x09" * 32)])
    dispute.tick("submit", round_, one_job(dispute), pack_submissions([dispute.market.signed(round_, worker, leaves)]))
    return [SettledLeaves(worker.node, leaves)]


def as_admin(market: Market, call: Call) -> None:
    """Sends as the admin, whose key nobody kept."""
    admin = market.chain.latest().view("Admin", "defaultAdmin")
    market.anvil.fund(admin)
    market.anvil.rpc.call("anvil_impersonateAccount", admin)
    market.anvil.rpc.call("eth_sendTransactionSync", {"from": admin, "to": call.to, "data": "0x" + call.data.hex()})
    market.anvil.rpc.call("anvil_stopImpersonatingAccount", admin)


def serve(dispute: Dispute, rules_hash: bytes) -> None:
    """Every validator joins the run at these rules."""
    market = dispute.market
    for judge in dispute.validators.values():
        market.send(judge.owner, calls.join(market.deployment, market.run, judge.node, rules_hash))


def renewed(terms: RunTerms, rules_hash: bytes) -> RunTerms:
    """Other terms in everything that a round keeps."""
    return replace(
        terms,
        rules_hash=rules_hash,
        price_per_unit=NEW_PRICE,
        juror_fee=2 * FEE,
        max_units=MAX_UNITS // 2,
        committee=3,
        appeal_seats=0,
        draw_seconds=2 * WINDOW,
        commit_seconds=3 * WINDOW,
        reveal_seconds=4 * WINDOW,
        challenge_seconds=0,
    )


def accept(dispute: Dispute, round_: int) -> None:
    """The one job of an open round is submitted, accepted and settled."""
    batch = submit_one(dispute, round_)
    dispute.tick("draw", round_)
    judge(dispute, round_, {0: OK})
    dispute.market.pass_time(WINDOW + 1)
    dispute.tick("settle", round_, 0, one_job(dispute), pack_parts(batch))


CHAPTERS = (condemn, dispute_all, hear, settle, finish, sweep_twice)
"""An appeal's whole story, to be stopped and looked at after each."""


def told(dispute: Dispute) -> Dispute:
    """All chapters of the appeals."""
    for chapter in CHAPTERS:
        chapter(dispute)
    return dispute
