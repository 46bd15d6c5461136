"""The shared fold against the mirror's rows and the validator's rounds, after every event of a disputed run."""

from __future__ import annotations

from coordinator.mirror.fold import fold as fold_rows
from coordinator.mirror.market import Market, is_live
from protocol.chain.events import AppealOpened, Log
from protocol.chain.reading.tail import Rollback, Tail
from protocol.chain.round_state import RoundState, fold
from protocol.chain.structs import State
from tests.ledger import disputes
from tests.ledger.conftest import dispute, market  # noqa: F401
from tests.ledger.disputes import Dispute
from validator.rounds import FollowedRound, Rounds

NEVER_CHANGING = ("run", "parent", "step", "policy_version", "jobs", "slot_count", "opened_at", "open_block", "beacon")
CHANGING = ("state", "attempt", "deadline", "revealing", "holding", "submitted", "accepted", "fraud", "consumed")
FIELDS = (*NEVER_CHANGING, "assignments", *CHANGING, "appealed", "appeals", "concluded")


def logs(dispute: Dispute) -> list[Log]:  # noqa: F811
    tail, found = Tail(dispute.market.chain), list[Log]()
    while answer := tail.poll():
        assert not isinstance(answer, Rollback)
        found += [log for block in answer for log in block.logs]
    return found


def values(round_: object) -> dict[str, object]:
    return {name: getattr(round_, name) for name in FIELDS}


def seats(round_: RoundState) -> dict[tuple[int, int], tuple[bool, bool]]:
    return {key: (seat.committed, seat.revealed) for key, seat in round_.seats.items()}


def leaves(round_: RoundState) -> dict[tuple[int, bytes], int]:
    return {(job, submitted.leaf.root): submitted.node for job, submitted in round_.leaves.items()}


def check(rows: Market, followed: dict[int, FollowedRound], shared: dict[int, RoundState]) -> None:
    """Every party has the same rounds, and a live round the same seats."""
    assert rows.rounds.keys() == followed.keys()
    assert shared.keys() == {number for number, row in rows.rounds.items() if not row.parent}
    for number, row in rows.rounds.items():
        assert values(row) == values(followed[number])
        if is_live(row):
            mirrored = {key: (seat.committed, seat.revealed) for key, seat in rows.seats.get(number, {}).items()}
            assert mirrored == seats(followed[number])
    for number, round_ in shared.items():
        assert values(round_) == values(followed[number])
        assert (seats(round_), leaves(round_)) == (seats(followed[number]), leaves(followed[number]))


def test_after_every_event_mirror_validator_and_shared_fold_have_the_same_rounds(dispute: Dispute) -> None:  # noqa: F811
    disputes.told(dispute)
    rows, juror, shared = Market(), Rounds(keep_ended=True), dict[int, RoundState]()
    history = logs(dispute)
    for log in history:
        fold_rows(rows, log)
        juror.fold([log])
        fold(shared, log)
        check(rows, juror.live, shared)
    assert {row.state for row in rows.rounds.values()} >= {State.SETTLED, State.VOID}
    assert len([log for log in history if isinstance(log.event, AppealOpened)]) >= 3
    assert any(len({attempt for attempt, _ in round_.seats}) > 1 for round_ in juror.live.values()), "drawn again"
    assert any(round_.consumed and round_.appealed for round_ in shared.values()), "trained on, then appealed"
