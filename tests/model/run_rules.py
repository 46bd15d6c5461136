"""What requesters, trainers and providers do with runs."""

from __future__ import annotations

from dataclasses import replace

from eth_utils.crypto import keccak
from hypothesis import strategies as st
from hypothesis.stateful import rule

from protocol.chain.structs import Consumption, Role, RunTerms, State, Verdict
from tests.model.parties import REQUESTER, TRAINER, run_terms
from tests.model.round import Round, bitmap
from tests.model.rules import Data, Rules
from tests.model.transaction import NO_HASH, NOBODY

DATA = st.data()

FAULTS: tuple[dict[str, object], ...] = (
    {"coordinator": NOBODY},
    {"trainer": NOBODY},
    {"rules_hash": NO_HASH},
    {"max_units": 0},
    {"committee": 2},
    {"committee": 17},
    {"work_seconds": 0},
    {"draw_seconds": 0},
    {"commit_seconds": 0},
    {"reveal_seconds": 0},
    {"challenge_seconds": 0},
    {"appeal_seats": 4},
    {"appeal_seats": 3},
    {"appeal_seats": 17},
    {"juror_fee": 38},
    {"work_seconds": 191},
    {"price_per_unit": 2**128 // (256 * 50)},
)
"""Terms that are refused, or just not."""


class RunRules(Rules):
    """Market."""

    @rule(data=DATA)
    def open_run(self, data: Data) -> None:
        manifest = NO_HASH if self.rarely(data) else keccak(text="manifest 0")
        self.twins.do(REQUESTER, "Market", "open", self._terms(data), manifest, "https://run.example")

    @rule(data=DATA)
    def announce(self, data: Data) -> None:
        run, _ = self.run(data)
        self.twins.do(self.sender(data, REQUESTER), "Market", "announce", run, self._terms(data))

    @rule(data=DATA)
    def join_or_leave(self, data: Data) -> None:
        number, run = self.run(data)
        since = run.history[-1][0]
        if data.draw(st.booleans()):
            self.moment(data, since)
        rules = keccak(text="other rules") if self.rarely(data) else run.terms(self.twins.now).rules_hash
        role = Role.VALIDATOR if self.rarely(data) else Role.WORKER
        for node in self.nodes(role)[:4]:
            owner = self.sender(data, node.owner)
            if self.rarely(data):
                self.twins.do(owner, "Market", "leave", number, node.number)
            else:
                self.twins.do(owner, "Market", "join", number, node.number, rules)

    @rule(data=DATA)
    def fund_or_refund(self, data: Data) -> None:
        number, run = self.run(data)
        verb = "refund" if run.closed else "fund"
        if self.rarely(data):
            verb = self.pick(data, ("fund", "refund"))
        amount = self.pick(data, (500, run.escrow, 0, 10**9))
        self.twins.do(self.sender(data, REQUESTER), "Market", verb, number, amount)

    @rule(data=DATA)
    def close_run(self, data: Data) -> None:
        if self.rarely(data, 3):
            number, _ = self.run(data)
            self.twins.do(self.sender(data, REQUESTER), "Market", "close", number)

    @rule(data=DATA)
    def publish(self, data: Data) -> None:
        judged = [round for round in self.rounds(State.TALLIED, State.SETTLED) if not round.appeal]
        used = [self._consumption(data, round) for round in judged[:3]]
        number = judged[0].run if judged else 1
        if self.rarely(data):
            number, _ = self.run(data)
        version = self.model.market.runs[number].version + self.pick(data, (1, 2, 0))
        manifest = NO_HASH if self.rarely(data) else keccak(text=f"manifest {version}")
        self.twins.do(self.sender(data, TRAINER), "Market", "publish", number, version, manifest, used)

    def _consumption(self, data: Data, round: Round) -> Consumption:
        unused = round.jobs_with(Verdict.ACCEPTED) - round.consumed
        jobs = unused | {self.pick(data, range(6))} if self.rarely(data) else unused
        return Consumption(round.number, bitmap(jobs))

    def _terms(self, data: Data) -> RunTerms:
        """Mostly good, at rules the run may or may not have had."""
        seats = self.pick(data, ((1, 3), (3, 5), (1, 0)))
        terms = run_terms(f"rules {data.draw(st.integers(1, 9))}", *seats)
        if self.rarely(data, 3):
            terms = replace(terms, **self.pick(data, FAULTS))  # type: ignore[arg-type]
        return terms
