"""What settled rounds say of the nodes, kept up with the chain without holding up a tick.

Rounds are taken in by the order they settled in, as soon as what their jurors measured is there, or is given up on. For
a round that opened in block B, those count that settled before B, under the same run and rules: every juror that has
the same bundles holds the same. Where a vote cannot wait, what is not there counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from validator.judging.judge import Judgement
from validator.judging.verdict import burdened
from validator.queue.local_judge import JudgedRound
from validator.records.bundles import Bundles
from validator.records.record import Bundle, EvidenceState, Records, SettledRound, finding_on, state_after
from validator.rounds import FollowedRound

AHEAD = 64
"""Rounds that one look takes in at most, and whose bundles are fetched at once."""


@dataclass(slots=True)
class _Past:
    """The settled rounds of one run under one set of rules: those taken in, and the others, in chain order."""

    seen: int = 0
    records: Records = field(default_factory=Records)
    waiting: list[SettledRound] = field(default_factory=list)


class History:
    """Every node's state. Used from one thread."""

    def __init__(self, bundles: Bundles) -> None:
        self._bundles = bundles
        self._settled: Sequence[SettledRound] = ()
        self._pasts: dict[tuple[int, bytes], _Past] = {}

    def follow(self, settled: Sequence[SettledRound], trying: Iterable[FollowedRound] = ()) -> None:
        """Takes note of the rounds settled so far; another list means that the chain was reorganised.

        Of runs other than those of the rounds that are being tried, or ever were, nothing is fetched.
        """
        if settled is not self._settled:
            self._settled, self._pasts = settled, {key: _Past() for key in self._pasts}
        for followed in trying:
            self._past(followed)
        for key, past in self._pasts.items():
            self._take_note(past, key)
            self._take_in(past)

    def complete(self, followed: FollowedRound) -> bool:
        """Whether all that counts for a round is there, or not worth waiting for. Starts fetching it where need be."""
        waiting = self._past(followed).waiting
        return not any(
            self._bundles.look(settled, named) is None and self._bundles.awaited(settled, named)
            for settled in islice(waiting, AHEAD)
            if settled.settled_in < followed.opened_in
            for named in settled.bundles
        ) and not any(settled.settled_in < followed.opened_in for settled in waiting[AHEAD:])

    def whole(self, followed: FollowedRound) -> bool:
        """Whether nothing that counts for a round is missing, nor was given up on."""
        return not any(settled.settled_in < followed.opened_in for settled in self._past(followed).waiting)

    def state(self, followed: FollowedRound, node: int) -> EvidenceState:
        """Returns where ``node`` stood when the round opened, by what is there now."""
        past = self._past(followed)
        state = past.records.before(node, followed.opened_in)
        for settled in past.waiting:
            if settled.settled_in < followed.opened_in and node in settled.nodes.values():
                state = state_after(state, node, settled, self._there(settled))
        return state

    def weigh(self, round_: JudgedRound, judgements: Sequence[Judgement]) -> list[Judgement]:
        """Returns the judgements; each job of a node whose record condemns it has that among its findings."""
        bound = round_.context.rules.sequential.bound
        nodes = {judgement.claim.node for judgement in judgements}
        held = {node: finding_on(self.state(round_.followed, node), bound) for node in nodes}
        return [
            judgement
            if (finding := held[judgement.claim.node]) is None
            else Judgement(judgement.claim, burdened(judgement.evidence, finding))
            for judgement in judgements
        ]

    def close(self) -> None:
        """Ends what is under way."""
        self._bundles.close()

    def _past(self, followed: FollowedRound) -> _Past:
        key = (followed.opened.run, followed.terms.rules_hash)
        if key not in self._pasts:
            self._pasts[key] = _Past()
            self._take_note(self._pasts[key], key)
        return self._pasts[key]

    def _take_note(self, past: _Past, key: tuple[int, bytes]) -> None:
        news, past.seen = self._settled[past.seen :], len(self._settled)
        past.waiting += [settled for settled in news if (settled.run, settled.rules_hash) == key]

    def _take_in(self, past: _Past) -> None:
        """Folds what is there, oldest first, up to the first round of which something is still to come."""
        in_order, taken = True, 0
        for settled in past.waiting[:AHEAD]:
            there = self._there(settled)
            in_order &= all(named.juror in there or self._bundles.given_up(settled, named) for named in settled.bundles)
            if in_order:
                past.records.settle(settled, there)
                self._bundles.forget(settled)
                taken += 1
        del past.waiting[:taken]

    def _there(self, settled: SettledRound) -> dict[int, Bundle]:
        looked = {named.juror: self._bundles.look(settled, named) for named in settled.bundles}
        return {juror: bundle for juror, bundle in looked.items() if bundle is not None}
