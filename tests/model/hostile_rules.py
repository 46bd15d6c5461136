"""Calls out of place: verbs at the wrong time, with the wrong things, by whoever may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from protocol.chain.structs import Cause, SettledLeaves, Submission
from tests.model.parties import EVERYBODY, EVIDENCE, KEYS, SALT, leaves_for, part
from tests.model.round import Round
from tests.model.rules import Data, Rules
from tests.model.transaction import NO_HASH

DATA = st.data()
Arguments = tuple[Any, ...]

GUARDED: tuple[tuple[str, str, Arguments], ...] = (
    ("Registry", "reserveJobs", (1, 1)),
    ("Registry", "freeJobs", (1, 1)),
    ("Registry", "slash", (1, 1, Cause.FRAUD, 100)),
    ("Registry", "award", (EVERYBODY[0], 1, 100)),
    ("Market", "reserve", (1, 1, 100)),
    ("Market", "release", (1, 1, 100)),
    ("Market", "pay", (1, 1, 1, EVERYBODY[0], 100)),
    ("Market", "deposit", (1, 1, EVERYBODY[0], 100)),
    ("Market", "payOut", (1, 1, EVERYBODY[0], 100)),
    ("Credits", "lock", (EVERYBODY[0], 1, 100)),
    ("Credits", "unlock", (EVERYBODY[0], 1, 100)),
    ("Credits", "earn", (EVERYBODY[0], 1, 1, 1, 100)),
    ("Credits", "grant", (EVERYBODY[0], 1, 100)),
    ("Rounds", "consume", (1, 1, 1)),
)
"""Verbs that only another contract may use."""

UNKNOWN = 99


class HostileRules(Rules):
    """Whatever must be refused, and now and then is not."""

    @rule(data=DATA)
    def use_a_verb_of_the_contracts(self, data: Data) -> None:
        contract, verb, arguments = self.pick(data, GUARDED)
        refused = self.twins.do(self.pick(data, EVERYBODY), contract, verb, *arguments)
        assert refused is not None

    @rule(data=DATA)
    def name_what_does_not_exist(self, data: Data) -> None:
        contract, verb, arguments = self.pick(
            data,
            (
                ("Registry", "topUp", (UNKNOWN, 1)),
                ("Registry", "retire", (UNKNOWN,)),
                ("Market", "fund", (UNKNOWN, 1)),
                ("Market", "join", (UNKNOWN, 1, NO_HASH)),
                ("Market", "join", (1, UNKNOWN, NO_HASH)),
                ("Market", "publish", (UNKNOWN, 1, SALT, [])),
                ("Rounds", "open", (UNKNOWN, 0, 0, b"")),
                ("Rounds", "expire", (UNKNOWN,)),
                ("Rounds", "draw", (UNKNOWN,)),
            ),
        )
        self.twins.do(self.pick(data, EVERYBODY), contract, verb, *arguments)

    @precondition(lambda self: self.model.rounds.rounds)
    @rule(data=DATA)
    def meddle_with_a_round(self, data: Data) -> None:
        round = self.pick(data, list(self.model.rounds.rounds.values()))
        ways: dict[str, Callable[[Data, Round], Arguments]] = {
            "close": lambda data, round: (self._assignments(data, round),),
            "draw": lambda data, round: (),
            "commit": lambda data, round: (SALT,),
            "reveal": lambda data, round: (self.pick(data, (0, 1)), self.pick(data, (0, 1)), b"\x05", EVIDENCE, SALT),
            "tally": lambda data, round: (),
            "expire": lambda data, round: (),
            "free": lambda data, round: (self._assignments(data, round),),
            "finish": lambda data, round: (self._assignments(data, round),),
            "settle": self._settling,
            "appeal": self._appealing,
            "submit": self._submitting,
        }
        verb = self.pick(data, list(ways))
        sender = self.pick(data, self._seated(round) if verb in ("commit", "reveal") else EVERYBODY)
        self.twins.do(sender, "Rounds", verb, round.number, *ways[verb](data, round))

    def _seated(self, round: Round) -> list[str]:
        """Keys with a seat, and one without."""
        nodes = self.model.registry.nodes
        return [key for seat in round.seats if (key := nodes[seat.juror].key) in KEYS] + [next(iter(KEYS))]

    def _assignments(self, data: Data, round: Round) -> bytes:
        return round.assignments + b"\0" if self.rarely(data, 4) else round.assignments

    def _supplied(self, data: Data, round: Round) -> tuple[int, list[SettledLeaves]]:
        batch = data.draw(st.integers(0, len(round.batches)))
        supplied = self.batch(round, batch)
        return batch, supplied[1:] if self.rarely(data, 4) else supplied

    def _settling(self, data: Data, round: Round) -> Arguments:
        batch, supplied = self._supplied(data, round)
        return batch, self._assignments(data, round), supplied

    def _appealing(self, data: Data, round: Round) -> Arguments:
        return self.pick(data, range(8)), *self._supplied(data, round)

    def _submitting(self, data: Data, round: Round) -> Arguments:
        """Good parts and bad ones in one batch."""
        parts = [self._part(data, round) for _ in range(data.draw(st.integers(0, 3)))]
        return self._assignments(data, round), parts

    def _part(self, data: Data, round: Round) -> Submission:
        node = self.pick(data, (1, 2, 3))
        own = [job for job, owner in enumerate(round.assignees) if owner == node]
        jobs = self.pick(data, (own, own[:1], own[1:], [0, 1], list(range(70)), [UNKNOWN], []))
        leaves = leaves_for(jobs, 30)
        leaves = self.pick(data, (leaves, leaves, leaves, leaves[:-1], leaves + leaves))
        key = self.pick(data, (self.model.registry.nodes[node].key, next(iter(KEYS))))
        at = self.twins.contracts.deployment
        key = key if key in KEYS else next(iter(KEYS))
        return part(at.chain_id, at.rounds, round.number, node, key, leaves)
