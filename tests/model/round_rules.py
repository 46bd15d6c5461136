"""The life of rounds and of appeals, in steps that mostly lead on."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from protocol.chain.structs import Role, State, Submission, Verdict
from protocol.wire.assignments import Listing, pack_assignments
from tests.model.parties import COORDINATOR, EVERYBODY, EVIDENCE, KEYS, PAUSER, PROVIDERS, SALT, leaves_for, part
from tests.model.round import Round, Seat, bitmap
from tests.model.rules import Data, Rules
from tests.model.transaction import NOBODY

DATA = st.data()
LIVE = (State.OPEN, State.CLOSED, State.VOTING, State.TALLIED)
VERDICTS = (Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.FRAUD, Verdict.VOID)
MOODS = ("agree", "agree", "agree", "split", "silent", "abstain")
BEHAVIOURS = ("agree", "agree", "differ", "abstain", "absent", "hide")
ABSTENTION = b"\xff"


class RoundRules(Rules):
    """Rounds."""

    # Opening

    @precondition(lambda self: len(self.rounds(State.OPEN, State.CLOSED, State.VOTING)) < 3)
    @rule(data=DATA)
    def open_round(self, data: Data) -> None:
        if self.model.admin.paused and not self.rarely(data):
            self.twins.must(PAUSER, "Admin", "unpause")
        number, run = self.run(data)
        ready = [
            node for node in self.nodes(Role.WORKER) if self.rarely(data, 20) or self._can_take(node.number, number)
        ]
        listed = [
            Listing(node.number, data.draw(st.integers(1, max(1, min(3, node.capacity - node.in_flight)))))
            for node in ready[:3]
        ]
        assignments = pack_assignments(listed) if listed else b""
        if self.rarely(data, 20):
            assignments += self.pick(data, (b"\0", b"\0\0\0\x01\xff", b"\0\0\0\x63\0"))
        version = self.pick(data, (run.version, 0)) + 5 * self.rarely(data, 20)
        self.twins.do(self.sender(data, COORDINATOR), "Rounds", "open", number, 7, version, assignments)

    def _can_take(self, number: int, run: int) -> bool:
        node, present = self.model.registry.nodes[number], self.model.market.runs[run]
        joined = present.joined.get(number) == present.terms(self.twins.now).rules_hash
        return joined and node.in_flight < node.capacity and self.model.registry.listable(node, self.twins.now)

    # Leading on

    @precondition(lambda self: self.rounds(*LIVE))
    @rule(data=DATA)
    def lead_on(self, data: Data) -> None:
        self._lead(data, self.pick(data, self.rounds(*LIVE)))

    @precondition(lambda self: self.rounds(*LIVE))
    @rule(data=DATA)
    def lead_the_oldest_on(self, data: Data) -> None:
        for _ in range(3):
            live = self.rounds(*LIVE)
            if live:
                self._lead(data, live[0])

    @precondition(lambda self: any(round.appeal for round in self.rounds(*LIVE)))
    @rule(data=DATA)
    def lead_an_appeal_on(self, data: Data) -> None:
        for _ in range(2):
            trials = [round for round in self.rounds(*LIVE) if round.appeal]
            if trials:
                self._lead(data, trials[-1])

    def _lead(self, data: Data, round: Round) -> None:
        steps = {
            State.OPEN: self._work,
            State.CLOSED: self._draw,
            State.VOTING: self._vote,
            State.TALLIED: self.settle_or_appeal,
        }
        steps[round.state](data, round)

    def _work(self, data: Data, round: Round) -> None:
        missing = set() if self.rarely(data) else {job for job in range(len(round.assignees)) if self.rarely(data)}
        if self.rarely(data, 12):
            missing = set(range(len(round.assignees)))
        self._submit(data, round, missing)
        if len(self.now(round).submitted) < len(round.assignees) and not self.rarely(data):
            self.twins.wait(round.deadline + 1)
        self.twins.do(self.pick(data, EVERYBODY), "Rounds", "close", round.number, round.assignments)

    def _submit(self, data: Data, round: Round, missing: set[int]) -> None:
        parts = [self._part(data, round, node, missing) for node in sorted(set(round.assignees))]
        parts = [made for made in parts if made.leaves]
        batches = [[made] for made in parts] if data.draw(st.booleans()) else [parts]
        for batch in batches:
            if batch:
                sender = self.pick(data, (COORDINATOR, *PROVIDERS))
                self.twins.do(sender, "Rounds", "submit", round.number, round.assignments, batch)

    def _part(self, data: Data, round: Round, node: int, missing: set[int]) -> Submission:
        jobs = [job for job, owner in enumerate(round.assignees) if owner == node]
        taken = self.now(round).submitted | missing
        leaves = leaves_for([job for job in jobs if job not in taken], self.pick(data, (20, 45, 70)))
        at, key = self.twins.contracts.deployment, self.model.registry.nodes[node].key
        return part(at.chain_id, at.rounds, round.number, node, key if key != NOBODY else next(iter(KEYS)), leaves)

    def _draw(self, data: Data, round: Round) -> None:
        if self.rarely(data, 20):
            self.twins.wait(round.deadline + 1)
        self.twins.do(self.pick(data, EVERYBODY), "Rounds", "draw", round.number)

    # Voting

    def _vote(self, data: Data, round: Round) -> None:
        """The whole committee, seat by seat as it behaves, and the tally."""
        mood = self.pick(data, MOODS)
        truth = {job: self._truth(data, round) for job in round.submitted}
        behaviours = [self.pick(data, BEHAVIOURS) if mood == "split" else mood for _ in round.seats]
        votes = [self._ballot(round, truth, behaviour) for behaviour in behaviours]
        seats = list(zip(round.seats, behaviours, votes, strict=True))
        for seat, behaviour, vote in seats:
            if behaviour not in ("silent", "absent"):
                self._commit(round, seat, vote)
        self._wait_to_reveal(round)
        for seat, behaviour, vote in seats:
            if behaviour not in ("silent", "absent", "hide"):
                self.twins.do(self._key(seat), "Rounds", "reveal", round.number, *vote, EVIDENCE, SALT)
        self._wait_to_tally(data, round)
        self.twins.do(self.pick(data, EVERYBODY), "Rounds", "tally", round.number)

    def _truth(self, data: Data, round: Round) -> Verdict:
        """What the job deserves; in an appeal the verdict is confirmed about as often as not."""
        if round.appeal and data.draw(st.booleans()):
            return round.appeal.against
        return self.pick(data, VERDICTS)

    def _ballot(self, round: Round, truth: dict[int, Verdict], behaviour: str) -> tuple[int, int, bytes]:
        if behaviour == "abstain":
            return 0, 0, ABSTENTION
        turn = 1 if behaviour == "differ" else 0
        said = {job: Verdict((verdict + turn) % len(Verdict)) for job, verdict in truth.items()}
        accept = {job for job, verdict in said.items() if verdict == Verdict.ACCEPTED}
        fraud = {job for job, verdict in said.items() if verdict == Verdict.FRAUD}
        return bitmap(accept), bitmap(fraud), b"\x05" * len(round.submitted - accept)

    def _commit(self, round: Round, seat: Seat, vote: tuple[int, int, bytes]) -> None:
        commitment = self.model.rounds.commitment(self.now(round), seat.juror, *vote, EVIDENCE, SALT)
        self.twins.do(self._key(seat), "Rounds", "commit", round.number, commitment)

    def _key(self, seat: Seat) -> str:
        key = self.model.registry.nodes[seat.juror].key
        return key if key != NOBODY else next(iter(KEYS))

    def _wait_to_reveal(self, round: Round) -> None:
        if not self.now(round).revealing:
            self.twins.wait(self.now(round).deadline + 1)

    def _wait_to_tally(self, data: Data, round: Round) -> None:
        present = self.now(round)
        committed = [seat for seat in present.seats if seat.commitment is not None]
        if present.state == State.VOTING and not (present.revealing and all(seat.vote for seat in committed)):
            self.twins.wait(
                present.deadline + present.terms.reveal_seconds * (bool(committed) and not present.revealing) + 1
            )

    def settle_or_appeal(self, data: Data, round: Round) -> None:
        """What follows from a verdict, in the next file."""
        raise NotImplementedError
