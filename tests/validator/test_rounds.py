"""What settled rounds leave behind: who said what under which key, and whose record was found guilty."""

from __future__ import annotations

import math

import pytest

from protocol.chain.events import (
    AppealDecided,
    AppealedJobSettled,
    AppealOpened,
    CommitteeDrawn,
    CommitteeRedrawn,
    Event,
    KeyRotated,
    Log,
    NodeJoined,
    NodeLeft,
    NodeRegistered,
    RevealStarted,
    RoundClosed,
    RoundOpened,
    RoundSettled,
    RoundTallied,
    RoundVoided,
    RunClosed,
    RunOpened,
    SlotContested,
    SlotKept,
    SlotPassed,
    Submitted,
    VoteCommitted,
    VoteRevealed,
)
from protocol.chain.structs import Role, RunTerms, Verdict
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.reasons import Reason
from protocol.wire.votes import abstention
from validator.records.record import NamedBundle
from validator.rounds import Rounds

TERMS = RunTerms("", "", b"\x02" * 32, 1, 1, 1, 3, 5, 600, 600, 600, 600, 60)
ABSTAINED = abstention()


def root(juror: int) -> bytes:
    return bytes([juror]) * 32


def submitted(node: int, *jobs: int) -> Submitted:
    return Submitted(1, node, 0, b"", pack_leaves([Leaf(job, 1, bytes([job + 1]) * 32) for job in jobs]), "", b"")


BEFORE: tuple[Event, ...] = (
    RunOpened(1, "", TERMS, b"", ""),
    *(NodeRegistered(juror, "", f"key-{juror}", Role.VALIDATOR, 0, 1, 1, 0) for juror in (4, 5, 6)),
    NodeRegistered(8, "other", "key-8", Role.WORKER, 1, 1, 1, 0),
    NodeRegistered(9, "owner", "key-9", Role.WORKER, 1, 1, 1, 0),
    RoundOpened(1, 1, 0, 0, 4, 3, 0, 100, pack_assignments([Listing(9, 2), Listing(8, 2)])),
    submitted(9, 0, 1),
    submitted(8, 2),
    RoundClosed(1, 0b111, 110),
    CommitteeDrawn(1, 0, 5, b"", (4, 5, 6), 120),
    VoteCommitted(1, 4, 0, b""),
    RevealStarted(1, 0, 130),
)


def revealed(juror: int, fraud: int = 0, reasons: bytes = b"", attempt: int = 0) -> VoteRevealed:
    return VoteRevealed(1, juror, attempt, 0b111 & ~fraud, fraud, reasons, root(juror), b"")


def folded(*events: Event) -> Rounds:
    rounds = Rounds()
    rounds.fold([Log(n, b"\x0b" * 32, b"", 0, 90 + n, event) for n, event in enumerate((*BEFORE, *events))])
    return rounds


def test_a_settled_round_names_its_bundles_and_the_keys_that_revealed_them() -> None:
    abstained = VoteRevealed(1, 6, 0, 0, 0, ABSTAINED.reasons, bytes(32), b"")
    rounds = folded(revealed(5), KeyRotated(5, "", "new"), revealed(4), abstained, RoundTallied(1, 0, 7, 0, 0))
    assert rounds.settled == []
    rounds.fold([Log(50, b"", b"", 0, 200, RoundSettled(1, 0))])
    (settled,) = rounds.settled
    assert settled.bundles == (NamedBundle(4, "key-4", root(4)), NamedBundle(5, "key-5", root(5)))
    assert settled.nodes == {0: 9, 1: 9, 2: 8}
    assert settled.owners == {0: "owner", 1: "owner", 2: "other"}
    assert settled.listed == ("owner", "owner", "other", "other"), "one job was never submitted"
    assert (settled.settled_in, settled.rules_hash, settled.run) == (50, b"\x02" * 32, 1)
    assert not settled.condemned
    assert not rounds.live


def test_of_a_round_drawn_again_the_last_attempt_counts() -> None:
    again = (CommitteeRedrawn(1, 1, 0), CommitteeDrawn(1, 1, 6, b"", (5, 6), 0))
    rounds = folded(revealed(4), *again, revealed(5, attempt=1), RoundTallied(1, 1, 7, 0, 0), RoundSettled(1, 0))
    assert [named.juror for named in rounds.settled[0].bundles] == [5]
    assert rounds.settled[0].attempt == 1


@pytest.mark.parametrize(
    ("reasons", "fraud", "condemned"),
    [
        ([Reason.SEQUENCE, Reason.SEQUENCE, None], 0b001, {"owner"}),
        ([Reason.SEQUENCE, None, None], 0, set()),
        ([Reason.SEQUENCE, Reason.SAMPLING_FRAUD, None], 0b001, set()),
        ([Reason.SAMPLING_FRAUD, Reason.SAMPLING_FRAUD, None], 0b001, set()),
    ],
)
def test_a_record_is_found_guilty_where_a_majority_gives_that_reason(
    reasons: list[Reason | None], fraud: int, condemned: set[str]
) -> None:
    votes = [
        revealed(juror) if reason is None else revealed(juror, 0b001, bytes([reason]))
        for juror, reason in zip((4, 5, 6), reasons, strict=True)
    ]
    rounds = folded(*votes, RoundTallied(1, 0, 0b111 & ~fraud, fraud, 0), RoundSettled(1, 0))
    assert rounds.settled[0].condemned == condemned


def test_a_record_stays_guilty_where_an_appeal_overturns_the_verdict() -> None:
    votes = (revealed(juror, 0b001, bytes([Reason.SEQUENCE])) for juror in (4, 5, 6))
    appeal = AppealOpened(2, 1, "", 0, Verdict.FRAUD, 9, 1, 1, 200)
    overturned = (AppealDecided(2, 1, 0, Verdict.ACCEPTED, True, 0, 0, 0), RoundSettled(2, 0))
    corrected = AppealedJobSettled(1, 9, 0, Verdict.ACCEPTED, 1, 1)
    rounds = folded(*votes, RoundTallied(1, 0, 0b110, 0b001, 0), appeal, *overturned, corrected, RoundSettled(1, 0))
    assert rounds.settled[0].condemned == {"owner"}


def test_a_code_nobody_knows_says_nothing() -> None:
    votes = (revealed(juror, 0b001, b"\x63") for juror in (4, 5, 6))
    rounds = folded(*votes, RoundTallied(1, 0, 6, 1, 0), RoundSettled(1, 0))
    assert not rounds.settled[0].condemned


def test_a_closed_run_is_left_once_its_last_round_has_ended() -> None:
    joined = (NodeJoined(1, 4, b""), NodeJoined(2, 4, b""), NodeJoined(1, 5, b""), NodeLeft(1, 5))
    rounds = folded(*joined)
    assert rounds.outlived(4) == []
    rounds = folded(*joined, RunClosed(1, ""))
    assert rounds.outlived(4) == [], "it may be drawn still"
    rounds.fold([Log(50, b"", b"", 0, 200, RoundVoided(1, 0))])
    assert (rounds.outlived(4), rounds.outlived(5)) == ([1], [])


def test_a_newcomer_displaces_once_it_can_no_longer_be_matched() -> None:
    contest = SlotContested(9, 4, 5, 1250, until=300)
    assert folded(contest).displaces_from(5) == 300
    assert folded(contest).displaces_from(4) == math.inf
    assert folded(contest).contest_against(4) == contest
    assert folded(contest).contest_against(5) is None
    assert folded(contest, SlotKept(9, 4, 5)).contest_against(4) is None
    assert folded(contest, SlotKept(9, 4, 5)).displaces_from(5) == math.inf
    assert folded(contest, SlotPassed(9, 4, 5, 900)).displaces_from(5) == math.inf


def test_void_rounds_and_trials_of_appeals_leave_nothing_behind() -> None:
    assert folded(RoundVoided(1, 0)).settled == []
    appeal = AppealOpened(2, 1, "", 0, Verdict.ACCEPTED, 9, 1, 1, 200)
    decided = AppealDecided(2, 1, 0, Verdict.VOID, True, 0, 0, 0)
    tallied = RoundTallied(1, 0, 7, 0, 0)
    rounds = folded(revealed(4), tallied, appeal, decided, RoundSettled(2, 0), RoundSettled(1, 0))
    assert [settled.round for settled in rounds.settled] == [1]
    assert folded(tallied, appeal).live[2].opened_in == folded().live[1].opened_in
