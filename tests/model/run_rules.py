"""What requesters, trainers and providers do with runs."""

from __future__ import annotations

from dataclasses import replace

from eth_utils.crypto import keccak

from protocol.chain.structs import Consumption, Role, RunTerms, State, Verdict
from tests.model.chance import Chance
from tests.model.parties import EVERYBODY, REQUESTER, TRAINER, run_terms
from tests.model.round import Round, bitmap
from tests.model.rules import Rules
from tests.model.transaction import NO_HASH, NOBODY

FAULTS: tuple[dict[str, object], ...] = (
    {"coordinator": NOBODY},
    {"trainer": NOBODY},
    {"rules_hash": NO_HASH},
    {"max_units": 0},
    {"committee": 2},
    {"committee": 17},
    {"work_seconds": 0},
    {"draw_seconds": 0},
    {"commit_seconds": 9},
    {"reveal_seconds": 9},
    {"challenge_seconds": 0},
    {"appeal_seats": 4},
    {"appeal_seats": 3},
    {"appeal_seats": 17},
    {"juror_fee": 1},
    {"juror_fee": 2**128 // 36},
    {"work_seconds": 61},
    {"price_per_unit": 4},
)
"""Terms that are refused, or just not."""


class RunRules(Rules):
    """Market."""

    def a_requester_or_trainer_acts(self, chance: Chance) -> None:
        ways = (
            self.open_run,
            self.announce,
            self.join_or_leave,
            self.fund_or_refund,
            self.close_run,
            self.publish,
            self.publish,
        )
        chance.pick(ways)(chance)

    def open_run(self, chance: Chance) -> None:
        manifest = NO_HASH if chance.rarely() else keccak(text="manifest 0")
        self.twins.do(REQUESTER, "Market", "open", self._terms(chance), manifest, "https://run.example")

    def announce(self, chance: Chance) -> None:
        run, _ = self.run(chance)
        self.twins.do(self.sender(chance, REQUESTER), "Market", "announce", run, self._terms(chance))

    def join_or_leave(self, chance: Chance) -> None:
        number, run = self.run(chance)
        since = run.history[-1][0]
        if chance.coin():
            self.moment(chance, since)
        rules = keccak(text="other rules") if chance.rarely() else run.terms(self.twins.now).rules_hash
        role = chance.pick((Role.VALIDATOR, Role.WORKER))
        if role == Role.VALIDATOR and chance.coin():
            rules = run.history[-1][1].rules_hash
        for node in self.nodes(role)[:4]:
            left_behind = run.closed or run.joined.get(node.number) != run.terms(self.twins.now).rules_hash
            if left_behind and chance.rarely(3):
                self.twins.do(chance.pick(EVERYBODY), "Market", "leave", number, node.number)
            owner = self.sender(chance, node.owner)
            if chance.rarely():
                self.twins.do(owner, "Market", "leave", number, node.number)
            else:
                self.twins.do(owner, "Market", "join", number, node.number, rules)

    def fund_or_refund(self, chance: Chance, number: int = 0) -> None:
        number = number or self.run(chance)[0]
        run = self.model.market.runs[number]
        verb = "refund" if run.closed else "fund"
        if chance.rarely():
            verb = chance.pick(("fund", "refund"))
        for amount in chance.shuffled((500, run.escrow, 0, 10**9)):
            self.twins.do(self.sender(chance, REQUESTER), "Market", verb, number, amount)

    def close_run(self, chance: Chance) -> None:
        """The first stays open, and half of the time nothing is closed: most rounds need an open run."""
        still_open = [number for number, run in self.model.market.runs.items() if number > 1 and not run.closed]
        number = chance.pick(still_open or [2])
        if chance.coin():
            self.twins.do(self.sender(chance, REQUESTER), "Market", "close", number)
            self.fund_or_refund(chance, number)

    def publish(self, chance: Chance) -> None:
        judged = [round for round in self.rounds(State.TALLIED, State.SETTLED) if not round.appeal or chance.rarely()]
        number = chance.pick(judged).run if judged else 1
        used = [self._consumption(chance, round) for round in judged if round.run == number or chance.rarely(12)]
        version = self.model.market.runs[number].version + chance.pick((1, 2, 0))
        manifest = NO_HASH if chance.rarely() else keccak(text=f"manifest {version}")
        self.twins.do(self.sender(chance, TRAINER), "Market", "publish", number, version, manifest, used)

    def _consumption(self, chance: Chance, round: Round) -> Consumption:
        unused = round.jobs_with(Verdict.ACCEPTED) - round.consumed
        jobs = unused | {chance.pick(range(6))} if chance.rarely() else unused
        return Consumption(round.number, bitmap(jobs))

    def _terms(self, chance: Chance) -> RunTerms:
        """Mostly good, at rules the run may or may not have had."""
        seats = chance.pick(((1, 3), (3, 5), (1, 0)))
        terms = run_terms(f"rules {chance.whole(1, 9)}", *seats)
        if chance.rarely(3):
            terms = replace(terms, **chance.pick(FAULTS))  # type: ignore[arg-type]
        return terms
