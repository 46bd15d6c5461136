"""The life of rounds and of appeals, in steps that mostly lead on."""

from __future__ import annotations

from protocol.chain.structs import Role, State, Submission, Verdict
from protocol.wire.assignments import Listing, pack_assignments
from tests.model.chance import Chance
from tests.model.market import Run
from tests.model.parties import (
    COORDINATOR,
    EVERYBODY,
    EVIDENCE,
    KEYS,
    LONG,
    PAUSER,
    PROVIDERS,
    SALT,
    leaves_for,
    part,
)
from tests.model.registry import Node
from tests.model.round import Round, Seat, bitmap
from tests.model.rules import Rules
from tests.model.transaction import NOBODY

LIVE = (State.OPEN, State.CLOSED, State.VOTING, State.TALLIED)
VERDICTS = (Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.FRAUD, Verdict.VOID, Verdict.UNAVAILABLE)
MOODS = (*["agree"] * 9, *["split"] * 4, "silent", "abstain")
BEHAVIOURS = ("agree", "agree", "differ", "abstain", "absent", "hide")
ABSTENTION = b"\xff"


class RoundRules(Rules):
    """Rounds."""

    def rounds_go_on(self, chance: Chance) -> None:
        """Appeals first, then the oldest round, then a new one."""
        for _ in range(chance.whole(1, 3)):
            live = self.rounds(*LIVE)
            trials = [round for round in live if round.appeal]
            if trials and chance.coin():
                self._lead(chance, trials[0])
            elif not live or chance.rarely(6):
                self._open(chance)
            else:
                self._lead(chance, live[0] if chance.coin() else chance.pick(live))

    # Opening

    def _open(self, chance: Chance) -> None:
        if self.model.admin.paused and not chance.rarely():
            self.twins.must(PAUSER, "Admin", "unpause")
        self.restore_nodes(chance)
        number, run = self.run(chance)
        if not run.closed and not chance.rarely():
            self._serve_all(number, run)
        ready = [node for node in self.nodes(Role.WORKER) if self._can_take(node, run) or chance.rarely(12)]
        if not ready and not run.closed:
            self._join_all(number, run)
            ready = self.nodes(Role.WORKER)
        listed = [
            Listing(node.number, chance.whole(1, max(1, min(3, node.capacity - node.in_flight)))) for node in ready[:3]
        ]
        assignments = pack_assignments(listed) if listed else b""
        if chance.rarely(20):
            assignments += chance.pick((b"\0", b"\0\0\0\x01\xff", b"\0\0\0\x63\0"))
        version = chance.pick((run.version, 0)) + 5 * chance.rarely(20)
        self.twins.do(self.sender(chance, COORDINATOR), "Rounds", "open", number, 7, version, assignments)

    def restore_nodes(self, chance: Chance) -> None:
        """Those who lost a part of their bond or their key mostly come back."""
        for node in list(self.model.registry.nodes.values()):
            if node.retired_at or chance.rarely():
                continue
            missing = self.model.registry.required_bond(node.role, node.capacity) - node.bond
            if missing > 0:
                self.twins.do(node.owner, "Registry", "topUp", node.number, missing + 200)
            if node.revoked:
                key = self.free_key()
                signature = self.twins.consent(node.owner, key, node.role, node.capacity)
                self.twins.do(node.owner, "Registry", "rotateKey", node.number, key, LONG, signature)

    def _can_take(self, node: Node, run: Run) -> bool:
        joined = run.joined.get(node.number) == run.terms(self.twins.now).rules_hash
        return joined and node.in_flight < node.capacity and self.model.registry.listable(node, self.twins.now)

    def _join_all(self, number: int, run: Run) -> None:
        rules = run.terms(self.twins.now).rules_hash
        for node in self.nodes(Role.WORKER):
            self.twins.do(node.owner, "Market", "join", number, node.number, rules)

    def _serve_all(self, number: int, run: Run) -> None:
        """Validators that could be drawn join again, those that must wait for their strikes left out."""
        rules, most = run.terms(self.twins.now).rules_hash, self.model.market.terms.max_strikes
        for node in self.nodes(Role.VALIDATOR):
            out = len(self.model.market.strikes(run, node.number, self.twins.now)) >= most
            if (node.number, rules) not in run.serving and not node.retired_at and not out:
                self.twins.do(node.owner, "Market", "join", number, node.number, rules)

    # Leading on

    def _lead(self, chance: Chance, round: Round) -> None:
        steps = {
            State.OPEN: self.work_on,
            State.CLOSED: self._draw,
            State.VOTING: self._vote,
            State.TALLIED: self.settle_or_appeal,
        }
        steps[round.state](chance, round)

    def work_on(self, chance: Chance, round: Round) -> None:
        missing = set() if chance.rarely() else {job for job in range(len(round.assignees)) if chance.rarely()}
        if chance.rarely(12):
            missing = set(range(len(round.assignees)))
        self._submit(chance, round, missing)
        if self.now(round).state == State.CLOSED:
            return
        if not chance.rarely():
            self.twins.wait(round.deadline + 1)
        self.twins.do(chance.pick(EVERYBODY), "Rounds", "close", round.number, round.assignments)

    def _submit(self, chance: Chance, round: Round, missing: set[int]) -> None:
        parts = [self._part(chance, round, node, missing) for node in sorted(set(round.assignees))]
        parts = [made for made in parts if made.leaves]
        batches = [[made] for made in parts] if chance.coin() else [parts]
        for batch in batches:
            if batch:
                sender = chance.pick((COORDINATOR, *PROVIDERS))
                self.twins.do(sender, "Rounds", "submit", round.number, round.assignments, batch)

    def _part(self, chance: Chance, round: Round, node: int, missing: set[int]) -> Submission:
        jobs = [job for job, owner in enumerate(round.assignees) if owner == node]
        taken = self.now(round).submitted | missing
        leaves = leaves_for([job for job in jobs if job not in taken], chance.pick((20, 45, 70)))
        at, key = self.twins.contracts.deployment, self.model.registry.nodes[node].key
        return part(at.chain_id, at.rounds, round.number, node, key if key != NOBODY else next(iter(KEYS)), leaves)

    def _draw(self, chance: Chance, round: Round) -> None:
        if chance.rarely(20):
            self.twins.wait(round.deadline + 1)
        self.twins.do(chance.pick(EVERYBODY), "Rounds", "draw", round.number)

    # Voting

    def _vote(self, chance: Chance, round: Round) -> None:
        mood = chance.pick(MOODS)
        truth = {job: self._truth(chance, round) for job in sorted(round.submitted)}
        self.hold_vote(
            chance, round, truth, [chance.pick(BEHAVIOURS) if mood == "split" else mood for _ in round.seats]
        )

    def hold_vote(self, chance: Chance, round: Round, truth: dict[int, Verdict], behaviours: list[str]) -> None:
        """The whole committee, seat by seat as it behaves, and the tally where the last reveal is not one."""
        votes = [self._ballot(round, truth, behaviour) for behaviour in behaviours]
        seats = list(zip(round.seats, behaviours, votes, strict=True))
        for seat, behaviour, vote in seats:
            if behaviour not in ("silent", "absent"):
                self._commit(round, seat, vote)
        self._wait_to_reveal(round)
        for seat, behaviour, vote in seats:
            if behaviour not in ("silent", "absent", "hide"):
                self.twins.do(self._key(seat), "Rounds", "reveal", round.number, *vote, EVIDENCE, SALT)
        if self.now(round).state == State.VOTING:
            self._wait_to_tally(round)
            self.twins.do(chance.pick(EVERYBODY), "Rounds", "tally", round.number)

    def _truth(self, chance: Chance, round: Round) -> Verdict:
        """What the job deserves; in an appeal the verdict is confirmed about as often as not."""
        if round.appeal and chance.coin():
            return round.appeal.against
        return chance.pick(VERDICTS)

    def _ballot(self, round: Round, truth: dict[int, Verdict], behaviour: str) -> tuple[int, int, bytes]:
        if behaviour == "abstain":
            return 0, 0, ABSTENTION
        turn = 1 if behaviour == "differ" else 0
        said = {job: Verdict((verdict + turn) % len(Verdict)) for job, verdict in truth.items()}
        accept = {job for job, verdict in said.items() if verdict & 1}
        fraud = {job for job, verdict in said.items() if verdict & 2}
        return bitmap(accept), bitmap(fraud), b"\x05" * len(round.submitted - (accept - fraud))

    def _commit(self, round: Round, seat: Seat, vote: tuple[int, int, bytes]) -> None:
        commitment = self.model.rounds.commitment(self.now(round), seat.juror, *vote, EVIDENCE, SALT)
        self.twins.do(self._key(seat), "Rounds", "commit", round.number, commitment)

    def _key(self, seat: Seat) -> str:
        key = self.model.registry.nodes[seat.juror].key
        return key if key != NOBODY else next(iter(KEYS))

    def _wait_to_reveal(self, round: Round) -> None:
        if not self.now(round).revealing:
            self.twins.wait(self.now(round).deadline + 1)

    def _wait_to_tally(self, round: Round) -> None:
        present = self.now(round)
        committed = any(seat.commitment is not None for seat in present.seats)
        if not present.voted:
            self.twins.wait(present.deadline + present.terms.reveal_seconds * (committed and not present.revealing) + 1)

    def settle_or_appeal(self, chance: Chance, round: Round) -> None:
        """What follows from a verdict, in the next file."""
        raise NotImplementedError
