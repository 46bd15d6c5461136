"""Calls out of place: verbs at the wrong time, with the wrong things, by whoever may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.chain.structs import Cause, SettledLeaves, Submission
from tests.model.chance import Chance
from tests.model.parties import EVERYBODY, EVIDENCE, KEYS, SALT, leaves_for, part
from tests.model.round import Round
from tests.model.rules import Rules
from tests.model.transaction import NO_HASH

Arguments = tuple[Any, ...]

GUARDED: tuple[tuple[str, str, Arguments], ...] = (
    ("Registry", "reserveJobs", (bytes([0, 0, 0, 1, 0]),)),
    ("Registry", "freeJobs", (bytes([0, 0, 0, 1, 0]),)),
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
UNKNOWNS: tuple[tuple[str, str, Arguments], ...] = (
    ("Registry", "topUp", (UNKNOWN, 1)),
    ("Registry", "retire", (UNKNOWN,)),
    ("Market", "fund", (UNKNOWN, 1)),
    ("Market", "join", (UNKNOWN, 1, NO_HASH)),
    ("Market", "join", (1, UNKNOWN, NO_HASH)),
    ("Market", "publish", (UNKNOWN, 1, SALT, [])),
    ("Rounds", "open", (UNKNOWN, 0, 0, b"")),
    ("Rounds", "expire", (UNKNOWN,)),
    ("Rounds", "draw", (UNKNOWN,)),
)
"""Calls about what there is not."""


class HostileRules(Rules):
    """Whatever must be refused, and now and then is not."""

    def somebody_meddles(self, chance: Chance) -> None:
        ways = [self.use_a_verb_of_the_contracts, self.name_what_does_not_exist]
        if self.model.rounds.rounds:
            ways += [self.meddle_with_a_round] * 4
        chance.pick(ways)(chance)

    def use_a_verb_of_the_contracts(self, chance: Chance) -> None:
        contract, verb, arguments = chance.pick(GUARDED)
        refused = self.twins.do(chance.pick(EVERYBODY), contract, verb, *arguments)
        assert refused is not None

    def name_what_does_not_exist(self, chance: Chance) -> None:
        contract, verb, arguments = chance.pick(UNKNOWNS)
        self.twins.do(chance.pick(EVERYBODY), contract, verb, *arguments)

    def meddle_with_a_round(self, chance: Chance) -> None:
        round = chance.pick(list(self.model.rounds.rounds.values()))
        ways: dict[str, Callable[[Chance, Round], Arguments]] = {
            "close": lambda chance, round: (self._assignments(chance, round),),
            "draw": lambda chance, round: (),
            "commit": lambda chance, round: (SALT,),
            "reveal": lambda chance, round: (chance.pick((0, 1)), chance.pick((0, 1)), b"\x05", EVIDENCE, SALT),
            "tally": lambda chance, round: (),
            "expire": lambda chance, round: (),
            "free": lambda chance, round: (self._assignments(chance, round),),
            "finish": lambda chance, round: (self._assignments(chance, round),),
            "settle": self._settling,
            "appeal": self._appealing,
            "submit": self._submitting,
        }
        verb = chance.pick(list(ways))
        sender = chance.pick(self._seated(round) if verb in ("commit", "reveal") else EVERYBODY)
        self.twins.do(sender, "Rounds", verb, round.number, *ways[verb](chance, round))

    def _seated(self, round: Round) -> list[str]:
        """Keys with a seat, and one without."""
        nodes = self.model.registry.nodes
        return [key for seat in round.seats if (key := nodes[seat.juror].key) in KEYS] + [next(iter(KEYS))]

    def _assignments(self, chance: Chance, round: Round) -> bytes:
        return round.assignments + b"\0" if chance.rarely(4) else round.assignments

    def _supplied(self, chance: Chance, round: Round) -> tuple[int, list[SettledLeaves]]:
        batch = chance.whole(0, len(round.batches))
        supplied = self.batch(round, batch)
        return batch, supplied[1:] if chance.rarely(4) else supplied

    def _settling(self, chance: Chance, round: Round) -> Arguments:
        batch, supplied = self._supplied(chance, round)
        return batch, self._assignments(chance, round), supplied

    def _appealing(self, chance: Chance, round: Round) -> Arguments:
        return chance.pick(range(8)), *self._supplied(chance, round)

    def _submitting(self, chance: Chance, round: Round) -> Arguments:
        """Good parts and bad ones in one batch."""
        parts = [self._strange_part(chance, round) for _ in range(chance.whole(0, 3))]
        return self._assignments(chance, round), parts

    def _strange_part(self, chance: Chance, round: Round) -> Submission:
        node = chance.pick((1, 2, 3))
        own = [job for job, owner in enumerate(round.assignees) if owner == node]
        jobs = chance.pick((own, own[:1], own[1:], [0, 1], list(range(70)), [UNKNOWN], []))
        leaves = leaves_for(jobs, 30)
        leaves = chance.pick((leaves, leaves, leaves, b"", leaves + leaves))
        key = chance.pick((self.model.registry.nodes[node].key, next(iter(KEYS))))
        at = self.twins.contracts.deployment
        key = key if key in KEYS else next(iter(KEYS))
        return part(at.chain_id, at.rounds, round.number, node, key, leaves)
