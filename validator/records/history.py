"""Records of all nodes over the settled rounds, kept up with the chain without delaying a tick.

Rounds are folded in the order they settled, each as soon as its bundles are there or given up. For a round that opened
in block B, the rounds that settled before B under the same run and rules count: jurors that have the same bundles hold
the same records. If a vote cannot wait, missing bundles count nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from protocol.wire.evidence import Finding
from validator.records import record
from validator.records.bundles import Bundles

AHEAD = 64
"""Most rounds that one step folds, and whose bundles are fetched at once."""


@dataclass(slots=True)
class _Past:
    """The settled rounds of one run under one set of rules: the folded ones, and the others in chain order."""

    seen: int = 0
    records: record.Records = field(default_factory=record.Records)
    waiting: list[record.SettledRound] = field(default_factory=list)


class History:
    """Every node's evidence state. Used from one thread."""

    def __init__(self, bundles: Bundles) -> None:
        self._bundles = bundles
        self._settled: Sequence[record.SettledRound] = ()
        self._pasts: dict[tuple[int, bytes], _Past] = {}

    def follow(self, settled: Sequence[record.SettledRound], judging: Iterable[record.RecordPoint] = ()) -> None:
        """Takes in the rounds settled so far; another list object means that the chain was reorganised.

        Bundles are fetched for the runs of ``judging`` and of points asked for before, and for no others.
        """
        if settled is not self._settled:
            self._settled, self._pasts = settled, {key: _Past() for key in self._pasts}
        for point in judging:
            self._past(point)
        for key, past in self._pasts.items():
            self._take_note(past, key)
            self._take_in(past)

    def complete(self, point: record.RecordPoint) -> bool:
        """Returns whether every bundle that counts at ``point`` is there or no longer waited for; starts fetching."""
        waiting = self._past(point).waiting
        return not any(
            self._bundles.look(settled, named) is None and self._bundles.awaited(settled, named)
            for settled in islice(waiting, AHEAD)
            if settled.settled_in < point.opened_in
            for named in settled.bundles
        ) and not any(settled.settled_in < point.opened_in for settled in waiting[AHEAD:])

    def whole(self, point: record.RecordPoint) -> bool:
        """Returns whether no bundle that counts at ``point`` is missing or given up."""
        return not any(settled.settled_in < point.opened_in for settled in self._past(point).waiting)

    def state(self, point: record.RecordPoint, node: int) -> record.EvidenceState:
        """Returns the evidence state of ``node`` at ``point``, from the bundles that are there."""
        past = self._past(point)
        state = past.records.before(node, point.opened_in)
        for settled in past.waiting:
            if settled.settled_in < point.opened_in and node in settled.nodes.values():
                state = record.state_after(state, node, settled, self._there(settled))
        return state

    def findings(self, point: record.RecordPoint, nodes: Collection[int], bound: float) -> dict[int, Finding]:
        """Returns a finding for each of ``nodes`` whose evidence reaches ``bound`` at ``point``."""
        found = {node: record.finding_on(self.state(point, node), bound) for node in nodes}
        return {node: finding for node, finding in found.items() if finding is not None}

    def close(self) -> None:
        """Ends the fetches."""
        self._bundles.close()

    def _past(self, point: record.RecordPoint) -> _Past:
        key = (point.run, point.rules_hash)
        if key not in self._pasts:
            self._pasts[key] = _Past()
            self._take_note(self._pasts[key], key)
        return self._pasts[key]

    def _take_note(self, past: _Past, key: tuple[int, bytes]) -> None:
        news, past.seen = self._settled[past.seen :], len(self._settled)
        past.waiting += [settled for settled in news if (settled.run, settled.rules_hash) == key]

    def _take_in(self, past: _Past) -> None:
        """Folds rounds, oldest first, up to the first one with a bundle still to come."""
        in_order, taken = True, 0
        for settled in past.waiting[:AHEAD]:
            there = self._there(settled)
            in_order &= all(named.juror in there or self._bundles.given_up(settled, named) for named in settled.bundles)
            if in_order:
                past.records.settle(settled, there)
                self._bundles.forget(settled)
                taken += 1
        del past.waiting[:taken]

    def _there(self, settled: record.SettledRound) -> dict[int, record.Bundle]:
        looked = {named.juror: self._bundles.look(settled, named) for named in settled.bundles}
        return {juror: bundle for juror, bundle in looked.items() if bundle is not None}
