"""Three validators on a real chain: they judge, commit, reveal, draw and tally, and survive what goes wrong.

Artifacts and rules lie on a plain file server, weights on an origin: validators need no more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from structlog.testing import capture_logs

from protocol.chain.structs import State
from protocol.chain.writing import calls
from protocol.chain.writing.actions import drip, join_run, open_run
from protocol.chain.writing.appealing import open_appeal
from protocol.node.release import own_version
from protocol.wire import evidence
from protocol.wire.reasons import Reason
from protocol.wire.rules import encode_rules, rules_hash, with_least_version
from protocol.wire.votes import abstention
from tests.conftest import TOKEN, until
from tests.validator.conftest import RULES
from tests.validator.scene import Cast, Scene
from validator.doctor import diagnose
from validator.journal import VoteJournal, VoteKey


def test_validators_take_a_round_to_its_verdict_and_the_edited_job_is_fraud(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    opened = scene.open()
    honest, edited = scene.work(opened)
    scene.submit(opened, [honest, scene.edit(edited)], {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    tallied = scene.chain.latest().round(opened.round)
    assert (tallied.accepted, tallied.fraud) == (0b01, 0b10)
    for revealed in scene.reveals():
        juror = next(one for one in scene.jurors if one.node == revealed.juror)
        data = VoteJournal(juror.directory).evidence(revealed.evidence_root)
        signed = evidence.parse_signed(data, revealed.evidence_root)
        signed.verify(juror.key.address)
        assert [job.reason.name for job in signed.evidence.jobs] == ["ACCEPTED", "SAMPLING_FRAUD"]


def test_a_restarted_validator_reveals_what_it_had_journalled(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    opened = scene.open()
    juror = scene.jurors[0]
    written = VoteJournal(juror.directory).record(VoteKey(opened.round, 0, scene.beacon), abstention(), b"")
    scene.submit(opened, scene.work(opened), {0, 1})
    while not any(seat.commitment != bytes(32) for seat in scene.chain.latest().seats(opened.round)):
        juror.validator.tick()
    juror.close()
    juror.validator, juror.close = juror.build()
    scene.tick_until(opened.round, State.TALLIED)
    votes = {revealed.juror: revealed for revealed in scene.reveals()}
    assert votes[juror.node].salt == written.salt
    assert votes[juror.node].reasons == b"\xff"
    assert scene.chain.latest().round(opened.round).accepted == 0b11


def test_what_cannot_be_fetched_is_unavailable_where_the_rest_can(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {1})
    scene.tick_until(opened.round, State.TALLIED)
    tallied = scene.chain.latest().round(opened.round)
    assert (tallied.accepted, tallied.fraud) == (0b11, 0b01), "job 0 is unavailable"
    assert {revealed.reasons for revealed in scene.reveals()} == {b"\x01"}


def test_validators_that_can_fetch_nothing_abstain(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    opened = scene.open()
    scene.submit(opened, scene.work(opened), set(), places=["http://nowhere.invalid/"])
    scene.tick_until(opened.round, State.TALLIED, late=True)
    assert {revealed.reasons for revealed in scene.reveals()} == {b"\xff"}, "no holder answered: the fault may be here"


def test_a_validator_that_is_told_to_end_reveals_what_it_committed_to_and_takes_no_later_seat(
    make_scene: Callable[..., Scene], cast: Cast
) -> None:
    scene = make_scene(validators=1, committee=1)
    (juror,) = scene.jurors
    first = scene.open()
    scene.submit(first, scene.work(first), {0, 1})
    while not any(seat.commitment != bytes(32) for seat in scene.chain.latest().seats(first.round)):
        juror.validator.tick()
    juror.validator.drain()
    scene.change_node(cast.make_wallet("another"))
    second = scene.open()
    scene.submit(second, scene.work(second), {0, 1})
    assert not juror.validator.drained()
    scene.tick_until(first.round, State.TALLIED)
    juror.validator.tick()
    assert juror.validator.drained()
    assert [revealed.round for revealed in scene.reveals()] == [first.round]
    assert scene.chain.latest().round(second.round).state is State.CLOSED
    juror.close()
    juror.validator, juror.close = juror.build()
    scene.tick_until(second.round, State.TALLIED)
    assert [revealed.round for revealed in scene.reveals()] == [first.round, second.round]


def test_a_validator_too_old_for_a_run_abstains_with_its_reason_leaves_it_and_says_so_once(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(rules=with_least_version(RULES, "99.1"), validators=1, committee=1, one_key=True)
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    with capture_logs() as lines:
        scene.tick_until(opened.round, State.TALLIED)
    assert {revealed.reasons for revealed in scene.reveals()} == {b"\xff"}
    assert not any(scene.chain.latest().joined_at(scene.run, scene.jurors[0].node)), "no later seat is a strike"
    sentence = f"run {scene.run} asks for assize 99.1 or later, and this is {own_version()}: see assize update"
    assert [line["error"] for line in lines if line["event"] == "version_behind"] == [sentence]
    assert {line["why"] for line in lines if line["event"] == "abstains"} == {sentence}, "in each draw"


def test_a_round_of_before_is_judged_under_its_own_rules_whatever_version_later_ones_ask_for(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(validators=1, committee=1, work_seconds=7200)
    opened, (juror,) = scene.open(), scene.jurors
    newer = encode_rules(with_least_version(scene.court.rules, "99.1"))
    run = scene.chain.latest().run(scene.run)
    call = calls.announce(scene.chain.deployment, scene.run, replace(run.terms, rules_hash=rules_hash(newer)))
    scene.chain.rpc.call("anvil_impersonateAccount", run.requester)
    sent = {"from": run.requester, "to": call.to, "data": "0x" + call.data.hex()}
    taken = scene.chain.rpc.call("eth_sendTransaction", sent)
    until(lambda: scene.chain.rpc.call("eth_getTransactionReceipt", taken) is not None, 10, "the announcement")
    scene.let_pass(3601)
    assert scene.chain.latest().run(scene.run).terms.rules_hash == rules_hash(newer)
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    assert scene.chain.latest().round(opened.round).accepted == 0b11
    assert not scene.chain.latest().strikes(scene.run, juror.node)[0]


APPEALS = {"validators": 4, "committee": 1, "appeal_seats": 3, "challenge_seconds": 3600}


def appealed(scene: Scene, cast: Cast) -> int:
    """Somebody appeals against the verdict on job 0 of round 1; the number of the appeal."""
    appellant = cast.sender("appellant")
    drip(appellant, TOKEN).carry_out("drip")
    return open_appeal(appellant, 1, 0).carry_out("appeal").appeal


def test_an_appeal_is_judged_by_the_others_from_the_same_artifact_under_its_own_number(
    make_scene: Callable[..., Scene], cast: Cast
) -> None:
    scene = make_scene(**APPEALS)
    opened = scene.open()
    honest, edited = scene.work(opened)
    scene.submit(opened, [scene.edit(honest), edited], {0, 1})
    scene.tick_until(opened.round, State.TALLIED, 60)
    (first,) = scene.reveals()
    appeal = appealed(scene, cast)
    scene.tick_until(appeal, State.SETTLED, 60)
    assert scene.chain.latest().round(opened.round).fraud == 0b01
    votes = [revealed for revealed in scene.reveals() if revealed.round == appeal]
    assert {revealed.juror for revealed in votes} == {one.node for one in scene.jurors} - {first.juror}
    for revealed in votes:
        juror = next(one for one in scene.jurors if one.node == revealed.juror)
        signed = evidence.parse_signed(
            VoteJournal(juror.directory).evidence(revealed.evidence_root), revealed.evidence_root
        )
        assert signed.evidence.round == appeal
        assert [(job.job, job.reason) for job in signed.evidence.jobs] == [(0, Reason.SAMPLING_FRAUD)]


def test_an_appeal_whose_artifact_is_gone_is_unavailable_and_not_undecided(
    make_scene: Callable[..., Scene], cast: Cast
) -> None:
    scene = make_scene(**APPEALS)
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED, 60)
    for path in (scene.files / "artifacts").iterdir():
        path.unlink()
    appeal = appealed(scene, cast)
    scene.tick_until(appeal, State.SETTLED, late=True)
    assert {revealed.reasons for revealed in scene.reveals() if revealed.round == appeal} == {b"\x01"}
    tallied = scene.chain.latest().round(opened.round)
    assert (tallied.accepted, tallied.fraud) == (0b11, 0b01)
    assert scene.chain.latest().view("Registry", "treasuryBalance") == 0, "nobody pays"


def test_a_validator_leaves_a_closed_run_by_itself(make_scene: Callable[..., Scene], cast: Cast) -> None:
    scene = make_scene()
    juror, deployment, requester = scene.jurors[0], scene.chain.deployment, cast.sender("another requester")
    terms = scene.chain.latest().run(scene.run).terms
    run = open_run(requester, terms, scene.manifest_root, "").carry_out("open").run
    join_run(juror.owner, run, juror.node).carry_out("join")
    juror.validator.tick()
    assert any(scene.chain.latest().joined_at(run, juror.node))
    requester.send("close", calls.close_run(deployment, run))
    while any(scene.chain.latest().joined_at(run, juror.node)):
        juror.validator.tick()
    assert any(scene.chain.latest().joined_at(scene.run, juror.node)), "it stays in the run that is open"


def test_doctor_names_what_is_missing(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene = make_scene()
    found = {one.name: one for one in diagnose(scene.settings(tmp_path))}
    assert found["chain"].ok
    assert found[f"run {scene.run}"].ok, found
    assert found[f"class of run {scene.run}"].detail == "the rules name no determinism class: any machine will do"
    assert not found["key"].ok
    assert "juror" in found["key"].detail
    nowhere = scene.settings(tmp_path).model_copy(update={"rpc_url": "http://127.0.0.1:1"})
    assert "no RPC answers" in {one.name: one for one in diagnose(nowhere)}["chain"].detail
