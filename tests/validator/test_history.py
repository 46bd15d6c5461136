"""Real validators on a real chain hold a node's settled rounds against it: all alike, and no honest one's."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deploy.adversaries.planted_records import ClearsRecord, PlantsRecord
from protocol.chain.events import RoundOpened
from protocol.chain.structs import State
from protocol.chain.writing.actions import drip
from protocol.chain.writing.appealing import open_appeal
from protocol.errors import Unavailable
from protocol.node.wallet import Wallet
from protocol.wire import evidence
from protocol.wire.reasons import Reason
from protocol.wire.rules import Rules, Sequential, Thresholds
from tests.conftest import TOKEN
from tests.validator.conftest import RULES, Court
from tests.validator.scene import Cast, Scene
from validator.daemon import Validator
from validator.journal import VoteJournal
from validator.queue.judged_round import record_point
from validator.records.bundles import WAIT_SECONDS, Bundles
from validator.records.history import History
from validator.records.record import EvidenceState, NamedBundle, Ratios, RecordPoint, SettledRound
from validator.records.reward_store import RewardStore
from validator.records.steering import Steering
from validator.review.replay import replay, sentences

LENIENT = Thresholds(
    sampling_void=1.0, logprob_median=0.5, logprob_tail=1.0, toploc=0.5, toploc_mean=0.5, toploc_null_ratio=0.95
)
"""Under these no job of the cheat is found wanting by itself."""

TWO_ROUNDS = Sequential(sigma=1e-4, false_alarm=0.1, horizon_jobs=1000)


def lenient(sequential: Sequential = TWO_ROUNDS) -> Rules:
    return RULES.model_copy(update={"thresholds": LENIENT, "sequential": sequential})


@pytest.fixture(scope="module")
def slightly_off(court: Court) -> Any:
    """The policy's network, each weight off by about a thousandth: what coarse quantisation does."""
    network = copy.deepcopy(court.policy.model.network)
    torch.manual_seed(1)
    with torch.no_grad():
        for weights in network.parameters():
            weights.mul_(1 + 2e-3 * torch.randn_like(weights))
    return network


def judged(scene: Scene, network: Any = None) -> RoundOpened:
    """A round from its opening to its tally."""
    opened = scene.open()
    scene.submit(opened, scene.work(opened, network), {0, 1})
    scene.tick()
    scene.followed[opened.round] = scene.jurors[0].validator._rounds.live[opened.round]
    scene.tick_until(opened.round, State.TALLIED, 60)
    return opened


def states(scene: Scene, opened: int, seconds: float = 10.0) -> list[EvidenceState]:
    """Where the worker stands with each juror after all that has settled, once they have what they will have."""
    found = []
    for juror in scene.jurors:
        juror.validator.tick()
        point = replace(record_point(scene.followed[opened], scene.court.rules), opened_in=1 << 60)
        give_up = time.monotonic() + seconds
        while not juror.validator._history.complete(point) and time.monotonic() < give_up:
            juror.validator.tick()
            time.sleep(0.01)
        found.append(
            juror.validator._history.record_of(point, scene.followed[opened].owners[scene.worker_node]).derived
        )
    return found


def reasons_in(scene: Scene, opened: RoundOpened) -> list[bytes]:
    return [revealed.reasons for revealed in scene.reveals() if revealed.round == opened.round]


def suspect(scene: Scene, network: Any, challenge_seconds: int = 0) -> float:
    """Settles rounds of slight evidence until it reaches the bound; returns what it comes to."""
    bound, reached = scene.court.rules.sequential.bound, 0.0
    for _ in range(4):
        opened = judged(scene, network)
        assert set(reasons_in(scene, opened)) == {b""}, "no job is wanting by itself"
        if challenge_seconds:
            scene.let_pass(challenge_seconds + 1)
        scene.settle(opened)
        juror, root = next(iter(_roots(scene, opened)))
        bundle = juror.validator._journal.evidence(root)
        llr = [float(job.measurements.llr_N.sum()) for job in evidence.parse_signed(bundle).evidence.jobs]
        for x in llr:
            reached = max(0.0, reached + x)
        if reached >= bound:
            return reached
    raise AssertionError(f"{reached} nats of {bound} after four rounds")


def _roots(scene: Scene, opened: RoundOpened) -> list[tuple[Any, bytes]]:
    """The jurors that revealed a vote, and the roots of their bundles."""
    by_node = {revealed.juror: revealed.evidence_root for revealed in scene.reveals() if revealed.round == opened.round}
    return [(juror, by_node[juror.node]) for juror in scene.jurors if juror.node in by_node]


def test_slight_evidence_in_settled_rounds_condemns_in_the_next_and_every_juror_says_so(
    make_scene: Callable[..., Scene], slightly_off: Any, tmp_path: Path
) -> None:
    scene = make_scene(rules=lenient())
    reached = suspect(scene, slightly_off)
    opened = judged(scene)  # honest work this time: the record counts
    assert reasons_in(scene, opened) == [bytes([Reason.SEQUENCE] * 2)] * 3
    assert scene.chain.latest().round(opened.round).fraud == 0b11
    for juror, root in _roots(scene, opened):
        signed = evidence.parse_signed(VoteJournal(juror.directory).evidence(root), root)
        for job in signed.evidence.jobs:
            (finding,) = job.findings
            assert finding.reason is Reason.SEQUENCE
            assert finding.observed == pytest.approx(reached, abs=1e-3)
            assert finding.limit == scene.court.rules.sequential.bound
    replayed = replay(scene.settings(tmp_path), signed.canonical)
    assert replayed.confirmed, list(sentences(replayed))
    assert {found for _, _, found in replayed.reasons} == {Reason.SEQUENCE}
    scene.settle(opened)
    assert states(scene, opened.round) == [EvidenceState()] * 3, "what it was condemned for is paid for"


def test_a_record_is_not_left_behind_with_a_node_id(
    make_scene: Callable[..., Scene], make_wallet: Callable[[str], Wallet], slightly_off: Any
) -> None:
    scene = make_scene(rules=lenient())
    suspect(scene, slightly_off)
    scene.change_node(make_wallet("another-key"))
    opened = judged(scene)
    assert reasons_in(scene, opened) == [bytes([Reason.SEQUENCE] * 2)] * 3


def test_an_honest_node_stands_near_zero_and_goes_on_being_accepted(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(rules=lenient())
    for _ in range(3):
        opened = judged(scene)
        scene.settle(opened)
    assert scene.chain.latest().round(opened.round).accepted == 0b11
    assert all(state.foremost[1] < 1.0 for state in states(scene, opened.round))


def reasons_by_juror(scene: Scene, round_: int) -> dict[int, bytes]:
    return {revealed.juror: revealed.reasons for revealed in scene.reveals() if revealed.round == round_}


def test_what_two_liars_of_three_plant_condemns_no_honest_node(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(rules=lenient(), kinds=[Validator, PlantsRecord, PlantsRecord])
    for _ in range(3):
        opened = judged(scene)
        assert set(reasons_by_juror(scene, opened.round).values()) == {b""}
        scene.settle(opened)
    honest, liar, _ = states(scene, opened.round)
    assert liar.choices > 1e6, "so it stands in the bundles that were published"
    assert honest.foremost[1] < 1.0


def test_what_two_liars_of_three_plant_washes_no_cheat_clean(
    make_scene: Callable[..., Scene], slightly_off: Any
) -> None:
    scene = make_scene(rules=lenient(), kinds=[Validator, ClearsRecord, ClearsRecord])
    reached = suspect(scene, slightly_off)
    opened = judged(scene)
    said = reasons_by_juror(scene, opened.round)
    assert said[scene.jurors[0].node] == bytes([Reason.SEQUENCE] * 2)
    assert [said[juror.node] for juror in scene.jurors[1:]] == [b"", b""]
    assert states(scene, opened.round)[0].choices == pytest.approx(reached, abs=1e-3)


def test_on_appeal_a_planted_record_is_measured_again_and_found_empty(
    make_scene: Callable[..., Scene], cast: Cast
) -> None:
    offered = {"validators": 4, "committee": 1, "appeal_seats": 3, "challenge_seconds": 3600}
    scene, seated = make_scene(rules=lenient(), kinds=[PlantsRecord] * 4, **offered), set[int]()
    for _ in range(2):
        opened = judged(scene)
        seated |= reasons_by_juror(scene, opened.round).keys()
        scene.let_pass(3601)
        scene.settle(opened)
    for juror in scene.jurors:
        juror.validator.__class__ = Validator
    opened = judged(scene)
    seated |= reasons_by_juror(scene, opened.round).keys()
    others = {juror.node for juror in scene.jurors} - seated
    appellant = cast.sender("appellant")
    drip(appellant, TOKEN).carry_out("drip")
    appeal = open_appeal(appellant, opened.round, 0).carry_out("appeal").appeal
    scene.tick_until(appeal, State.SETTLED, 60)
    for node in others:
        assert reasons_by_juror(scene, appeal)[node] == b""


def test_jobs_replaced_in_their_store_condemn_only_before_the_juror_that_measured_them(
    make_scene: Callable[..., Scene], slightly_off: Any
) -> None:
    one_round = Sequential(sigma=1e-4, false_alarm=0.5, horizon_jobs=1)
    scene = make_scene(rules=lenient(one_round), validators=4, committee=1)
    suspect(scene, slightly_off)
    measured = max(scene.followed)
    for path in (scene.files / "artifacts").iterdir():
        path.write_bytes(b"junk")
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.VOTING)
    for _ in range(40):  # every juror judges the new jobs; then the time to replay the old ones runs out
        scene.tick()
    scene.tick_until(opened.round, State.TALLIED, 60, late=True)
    (witness,) = reasons_by_juror(scene, measured)
    # A juror that has not read all of the record by the deadline abstains, and another is drawn.
    revealed = [vote for vote in scene.reveals() if vote.round == opened.round]
    *abstained, last = sorted(revealed, key=lambda vote: vote.attempt)
    assert last.reasons == (bytes([Reason.SEQUENCE] * 2) if last.juror == witness else b"")
    assert {vote.reasons for vote in abstained} <= {bytes([Reason.ABSTAIN])}


def lose_evidence(scene: Scene) -> None:
    """Takes every bundle out of the store, and out of the jurors' own hands."""
    for directory in (scene.files / "evidence", *(juror.directory / "evidence" for juror in scene.jurors)):
        for path in directory.iterdir():
            path.unlink()


def test_lost_bundles_condemn_nobody_and_a_vote_does_not_wait_for_them(
    make_scene: Callable[..., Scene], slightly_off: Any
) -> None:
    scene = make_scene(rules=lenient(Sequential(sigma=1e-4, false_alarm=0.5, horizon_jobs=1)))
    opened = judged(scene, slightly_off)
    scene.settle(opened)
    lose_evidence(scene)
    after = judged(scene)
    assert scene.chain.latest().round(after.round).accepted == 0b11
    scene.settle(after)
    lose_evidence(scene)
    assert states(scene, after.round, 0.5) == [EvidenceState()] * 3


def test_a_restart_keeps_what_was_learnt(make_scene: Callable[..., Scene], slightly_off: Any) -> None:
    scene = make_scene(rules=lenient())
    suspect(scene, slightly_off)
    opened, _ = max(scene.followed.items())
    before = states(scene, opened)
    assert len(set(before)) == 1
    assert before[0].foremost[1] >= scene.court.rules.sequential.bound
    lose_evidence(scene)
    for juror in scene.jurors:
        juror.close()
        juror.validator, juror.close = juror.build()
    assert states(scene, opened) == before


def test_on_appeal_the_record_is_that_of_the_round_appealed_against(
    make_scene: Callable[..., Scene], cast: Cast, slightly_off: Any
) -> None:
    one_round = Sequential(sigma=1e-4, false_alarm=0.5, horizon_jobs=1)
    offered = {"validators": 4, "committee": 1, "appeal_seats": 3, "challenge_seconds": 3600}
    scene = make_scene(rules=lenient(one_round), **offered)
    suspect(scene, slightly_off, challenge_seconds=3600)
    condemned = judged(scene)
    assert scene.chain.latest().round(condemned.round).fraud == 0b11
    appellant = cast.sender("appellant")
    drip(appellant, TOKEN).carry_out("drip")
    appeal = open_appeal(appellant, condemned.round, 0).carry_out("appeal").appeal
    scene.tick_until(appeal, State.SETTLED, 60)
    assert scene.chain.latest().round(condemned.round).fraud == 0b11
    votes = [revealed for revealed in scene.reveals() if revealed.round == appeal]
    assert [vote.reasons for vote in votes] == [bytes([Reason.SEQUENCE])] * 3


class Store:
    """Bundles by root, in memory; each says the same of job 0."""

    def __init__(self, directory: Path) -> None:
        self.now, self.there = 100.0, set[bytes]()
        self.bundles = Bundles(lambda run, root: b"", 1, "0x", directory, lambda: self.now)
        self.bundles._learn = self._learn  # type: ignore[method-assign]
        self.steering = Steering(RewardStore(directory))

    def _learn(self, settled: SettledRound, named: NamedBundle) -> dict[int, Ratios]:
        if named.root not in self.there:
            raise Unavailable("not there")
        return {0: Ratios(named.root[0], 0.0, 0.0)}

    def put(self, settled: SettledRound) -> None:
        self.there.update(named.root for named in settled.bundles)


OWNER = "0x7"


def past(number: int, rules_hash: bytes = b"\x02" * 32) -> SettledRound:
    """A settled round whose one job speaks with as many nats as its number."""
    named = NamedBundle(4, "", bytes([number]) * 32)
    return SettledRound(number, bytes(32), 1, rules_hash, 0, 10 * number, (named,), {0: 7}, {0: OWNER}, frozenset())


def opened_in(block: int) -> RecordPoint:
    return RecordPoint(1, b"\x02" * 32, block, TWO_ROUNDS)


def follow(store: Store, history: History, settled: list[SettledRound]) -> None:
    """Looks often enough for every fetch to begin, to end, and for what it brought to be taken in."""
    for _ in range(5):
        history.follow(settled)
        wait([fetch.future for fetch in store.bundles._fetches.values()])


def test_rounds_count_in_order_up_to_the_opening_and_of_these_rules_alone(tmp_path: Path) -> None:
    store, settled = Store(tmp_path), [past(1), past(2, b"\x03" * 32), past(3), past(4)]
    history = History(store.bundles, 4, store.steering)
    for one in settled:
        store.put(one)
    point = opened_in(40)
    assert history.complete(point), "nothing was followed yet"
    follow(store, history, settled)
    assert history.complete(point)
    assert history.record_of(point, OWNER).derived.choices == 1.0 + 3.0, "settled in block 40: too late"
    assert history.record_of(opened_in(41), OWNER).derived.choices == 8.0
    history.close()


def test_what_is_awaited_holds_a_vote_back_for_a_while_and_counts_once_it_comes(tmp_path: Path) -> None:
    store, settled, point = Store(tmp_path), [past(1), past(2)], opened_in(100)
    history = History(store.bundles, 4, store.steering)
    store.put(settled[1])
    history.complete(point)
    follow(store, history, settled)
    assert not history.complete(point)
    store.now += WAIT_SECONDS
    assert history.complete(point)
    assert not history.whole(point)
    assert history.record_of(point, OWNER).derived.choices == 2.0, "what is there counts"
    store.put(settled[0])
    for _ in range(10):
        store.now += 11.0
        follow(store, history, settled)
    assert history.whole(point)
    assert history.record_of(point, OWNER).derived.choices == 3.0
    history.close()


def test_after_a_reorganisation_the_record_follows_the_other_chain(tmp_path: Path) -> None:
    store, point = Store(tmp_path), opened_in(100)
    first, other = [past(1), past(2)], [past(1), past(5)]
    for one in (*first, *other):
        store.put(one)
    history = History(store.bundles, 4, store.steering)
    history.complete(point)
    follow(store, history, first)
    assert history.record_of(point, OWNER).derived.choices == 3.0
    follow(store, history, other)
    assert history.record_of(point, OWNER).derived.choices == 6.0
    history.close()
