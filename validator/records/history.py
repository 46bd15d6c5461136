"""Records of all owners over the settled rounds, kept up with the chain without delaying a tick.

Rounds are folded in the order they settled, each as soon as its bundles are there or given up. For a round that opened
in block B, the rounds that settled before B under the same run and rules count. Only jobs that this juror has measured
itself can condemn; where the statements of others raise a suspicion, ``underived`` names the jobs to replay first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import structlog

from protocol.wire.evidence import Finding
from protocol.wire.rules import Sequential
from validator.records import record
from validator.records.bundles import Bundles
from validator.records.steering import Steering

AHEAD = 64
"""Most rounds that one step folds, and whose bundles are fetched at once."""


log = structlog.get_logger()


@dataclass(slots=True)
class _Past:
    """The settled rounds of one run under one set of rules: the folded ones, and the others in chain order."""

    sequential: Sequential
    seen: int = 0
    records: record.Records = field(init=False)
    waiting: list[record.SettledRound] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records = record.Records(self.sequential)


class History:
    """Every owner's record before one juror. Used from one thread.

    Args:
        juror: the node whose own bundles and replays count as derived; None: nothing is derived.
        steering: the juror's evidence on rewards, which follows the same rounds.
    """

    def __init__(self, bundles: Bundles, juror: int | None, steering: Steering) -> None:
        self._bundles, self._juror, self.steering = bundles, juror, steering
        self._settled: Sequence[record.SettledRound] = ()
        self._pasts: dict[tuple[int, bytes], _Past] = {}

    def follow(self, settled: Sequence[record.SettledRound], judging: Iterable[record.RecordPoint] = ()) -> None:
        """Takes in the rounds settled so far; another list object means that the chain was reorganised.

        Bundles are fetched for the runs of ``judging`` and of points asked for before, and for no others.
        """
        judging = list(judging)
        self.steering.follow(settled, judging)
        if settled is not self._settled:
            self._settled = settled
            self._pasts = {key: _Past(past.sequential) for key, past in self._pasts.items()}
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

    def record_of(self, point: record.RecordPoint, owner: str) -> record.OwnerRecord:
        """Returns the record of ``owner`` at ``point``, from the bundles that are there."""
        past = self._past_of(point, owner)
        return past[-1][1] if past else record.OwnerRecord()

    def findings(self, point: record.RecordPoint, owners: Collection[str]) -> dict[str, Finding]:
        """Returns a finding for each of ``owners`` whose derived evidence reaches the bound at ``point``.

        Otherwise one for each whose rewards stand condemned.
        """
        bound = point.sequential.bound
        found = {owner: record.finding_on(self.record_of(point, owner).derived, bound) for owner in owners}
        return self.steering.findings(point, owners) | {
            owner: finding for owner, finding in found.items() if finding is not None
        }

    def underived(
        self, point: record.RecordPoint, owners: Collection[str]
    ) -> list[tuple[record.SettledRound, tuple[int, ...]]]:
        """Returns the jobs to replay before the suspicions against ``owners`` can condemn, newest first by owner."""
        return [
            (settled, missing)
            for owner in sorted(owners)
            for settled in record.excursion(self._past_of(point, owner), point.sequential.bound)
            if (missing := self._figures(settled).missing(settled, owner))
        ]

    def learn(self, settled: record.SettledRound, derived: record.Bundle) -> None:
        """Takes in jobs of a settled round that this juror has replayed."""
        assert self._juror is not None
        self._bundles.keep_replayed(settled, self._juror, derived)
        past = self._pasts[_key(settled)]
        for juror, bundle in self._there(settled).items():
            for job in bundle.keys() & derived.keys():
                stated, found = bundle[job].choices, derived[job].choices
                if abs(stated - found) > -record.CLEARING_SHARE * past.sequential.bound:
                    place = {"round": settled.round, "job": job, "juror": juror}
                    log.warning("evidence_contradicted", **place, stated=stated, derived=found)
        for owner in {settled.owners[job] for job in derived}:
            past.records.refold(owner, settled, self._figures)

    def close(self) -> None:
        """Ends the fetches and closes the databases."""
        self._bundles.close()
        self.steering.close()

    def _past(self, point: record.RecordPoint) -> _Past:
        key = (point.run, point.rules_hash)
        if key not in self._pasts:
            self._pasts[key] = _Past(point.sequential)
            self._take_note(self._pasts[key], key)
        return self._pasts[key]

    def _past_of(self, point: record.RecordPoint, owner: str) -> list[tuple[record.SettledRound, record.OwnerRecord]]:
        """The owner's rounds that count at ``point``, each with the record after it."""
        past = self._past(point)
        found = past.records.before(owner, point.opened_in)
        for settled in past.waiting:
            if settled.settled_in < point.opened_in and owner in settled.owners.values():
                before = found[-1][1] if found else record.OwnerRecord()
                found.append((settled, past.records.after(before, owner, settled, self._figures(settled))))
        return found

    def _take_note(self, past: _Past, key: tuple[int, bytes]) -> None:
        news, past.seen = self._settled[past.seen :], len(self._settled)
        past.waiting += [settled for settled in news if _key(settled) == key]

    def _take_in(self, past: _Past) -> None:
        """Folds rounds, oldest first, up to the first one with a bundle still to come."""
        in_order, taken = True, 0
        for settled in past.waiting[:AHEAD]:
            there = self._there(settled)
            in_order &= all(named.juror in there or self._bundles.given_up(settled, named) for named in settled.bundles)
            if in_order:
                past.records.settle(settled, self._figures(settled))
                self._bundles.forget(settled)
                taken += 1
        del past.waiting[:taken]

    def _figures(self, settled: record.SettledRound) -> record.RoundFigures:
        there = self._there(settled)
        if self._juror is None:
            return record.RoundFigures({}, False, list(there.values()))
        own = there.pop(self._juror, None)
        derived = self._bundles.replayed(settled, self._juror) if own is None else own
        return record.RoundFigures(derived, own is not None, list(there.values()))

    def _there(self, settled: record.SettledRound) -> dict[int, record.Bundle]:
        looked = {named.juror: self._bundles.look(settled, named) for named in settled.bundles}
        return {juror: bundle for juror, bundle in looked.items() if bundle is not None}


def _key(settled: record.SettledRound) -> tuple[int, bytes]:
    return settled.run, settled.rules_hash
