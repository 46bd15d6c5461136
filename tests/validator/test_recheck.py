"""`assize recheck`: which jobs it checks, what it predicts of an appeal, and that on a chain it comes true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.adversaries.lazy_jurors import AcceptsUnread, CopiesEvidence, HidesBundle, InventsEvidence
from protocol.amounts import tokens
from protocol.chain.structs import MOST_DRAWS, RoundsTerms, RunTerms, State, Verdict
from protocol.chain.writing.actions import drip
from protocol.chain.writing.appealing import decision_on
from protocol.node.wallet import Keystores
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire.evidence import Evidence, Finding, parse_signed
from protocol.wire.reasons import Reason
from tests.conftest import TOKEN
from tests.model.rounds import _last_word
from tests.validator.conftest import THRESHOLDS, Court, fetched
from tests.validator.scene import Cast, Scene
from validator.journal import VoteJournal, VoteKey
from validator.judging.check import TokenMeasurements
from validator.judging.judge import examine
from validator.judging.registry import CHECKS
from validator.judging.runs import Runs
from validator.recheck.commands import app
from validator.recheck.journal import DAY_SECONDS, RecheckJournal
from validator.recheck.prediction import doubt_of, is_chosen, last_word, objection, predict, verdict_of
from validator.recheck.rechecker import SHOWN, Rechecker

PASSWORD = "password"
ROOT = Path(__file__).resolve().parents[2]
FEE, PENALTY, BOND, BOUNTY = 100, 5_000, 1_000, 2_000
RUN = RunTerms("", "", b"", 1, FEE, 1 << 40, 3, 5, 600, 600, 600, 600, 3600)
ROUNDS = RoundsTerms(10_000, 1, PENALTY, BOND, BOUNTY)
OK, FRAUD, VOID, GONE = Verdict.ACCEPTED, Verdict.FRAUD, Verdict.VOID, Verdict.UNAVAILABLE


@pytest.mark.parametrize(("against", "named", "consumed"), list(product(Verdict, Verdict, (False, True))))
def test_the_last_word_is_that_of_the_reference_model(against: Verdict, named: Verdict, consumed: bool) -> None:
    assert last_word(against, named, consumed) is _last_word(against, named, consumed)


@pytest.mark.parametrize(
    ("against", "named", "votes", "awarded", "forfeited"),
    [
        (FRAUD, OK, [FRAUD, FRAUD, FRAUD], 5 * FEE + BOUNTY, 0),
        (FRAUD, OK, [FRAUD, FRAUD, OK], 5 * FEE + BOUNTY, 0),
        (OK, FRAUD, [OK, OK, GONE], 5 * FEE + BOUNTY, 0),
        (GONE, OK, [GONE, GONE, GONE], 0, 0),
        (VOID, OK, [OK, FRAUD, VOID], 5 * FEE + BOUNTY, 0),
        (OK, OK, [OK, OK, FRAUD], 5 * FEE, BOND),
        (FRAUD, FRAUD, [FRAUD] * 3, 0, BOND),
        (OK, GONE, [OK] * 3, 0, 0),
    ],
)
def test_an_appeal_costs_its_fees_and_what_the_contradicted_do_not_pay(
    against: Verdict, named: Verdict, votes: list[Verdict], awarded: int, forfeited: int
) -> None:
    found = predict(against, named, votes, False, RUN, ROUNDS)
    assert (found.awarded, found.forfeited) == (awarded, forfeited)
    assert found.fees == (0 if named is GONE else 5 * FEE)
    assert found.profit == awarded - found.fees - forfeited
    assert found.deposit == BOND + (5 + (MOST_DRAWS - 1) * 2) * FEE


def test_the_bounty_is_under_half_of_the_penalties() -> None:
    found = predict(FRAUD, OK, [FRAUD], False, RUN, replace(ROUNDS, overturn_penalty=700))
    assert found.awarded == 5 * FEE + min(BOUNTY, 700 - 5 * FEE, 349)


def test_it_appeals_only_where_the_verdict_falls_without_doubt_loss_or_debt() -> None:
    wrong = predict(FRAUD, OK, [FRAUD] * 3, False, RUN, ROUNDS)
    assert objection(wrong, None, 0, wrong.deposit) is None
    assert "budget" in str(objection(wrong, None, 1, wrong.deposit))
    assert "budget" in str(objection(wrong, None, 0, 0))
    assert objection(wrong, "near its bound", 0, wrong.deposit) == "near its bound"
    assert "would stand" in str(objection(predict(OK, OK, [OK] * 3, False, RUN, ROUNDS), None, 0, 10**9))
    assert f"cost {tokens(500)}" in str(objection(predict(GONE, OK, [GONE] * 3, False, RUN, ROUNDS), None, 0, 10**9))
    assert "proves nothing" in str(objection(predict(OK, GONE, [OK] * 3, False, RUN, ROUNDS), None, 0, 10**9))


def test_reasons_vote_for_the_verdict_that_the_contract_reads() -> None:
    assert verdict_of(Reason.ACCEPTED) is OK
    assert verdict_of(Reason.SAMPLING_FRAUD) is FRAUD
    assert verdict_of(Reason.WRONG_ROOT) is GONE
    assert verdict_of(Reason.SAMPLING_VOID) is VOID


def measured_of(court: Court) -> TokenMeasurements:
    claim, data = court.sample
    (found,) = examine(court.policy, court.rules, [fetched(claim, data)])
    assert found.measured is not None
    return found.measured


def test_figures_near_a_bound_and_records_are_left_to_others(court: Court) -> None:
    measured = measured_of(court)
    assert doubt_of(CHECKS, THRESHOLDS, measured, [Reason.SAMPLING_FRAUD]) is None
    assert doubt_of(CHECKS, THRESHOLDS, None, []) is None
    assert "record" in str(doubt_of(CHECKS, THRESHOLDS, measured, [Reason.SEQUENCE]))
    for margin, near in ((0.011, "sampling_void"), (0.0085, "sampling_void"), (0.45, "sampling_fraud"), (0.3, None)):
        margins_S = measured.margins_S.copy()
        margins_S[3] = margin
        doubt = doubt_of(CHECKS, THRESHOLDS, replace(measured, margins_S=margins_S), [])
        assert doubt is None if near is None else near in str(doubt)


def test_nobody_without_the_secret_knows_which_jobs_are_checked(tmp_path: Path) -> None:
    with closing(RecheckJournal(tmp_path / "one")) as one, closing(RecheckJournal(tmp_path / "two")) as two:
        beacons = [round_.to_bytes(32, "big") for round_ in range(20)]
        jobs = [(round_, beacon, job) for round_, beacon in enumerate(beacons) for job in range(200)]
        mine = {place for place in jobs if is_chosen(one.secret, *place, 0.25)}
        theirs = {place for place in jobs if is_chosen(two.secret, *place, 0.25)}
    assert 800 < len(mine) < 1200
    assert len(mine & theirs) < 400
    with closing(RecheckJournal(tmp_path / "one")) as again:
        assert {place for place in jobs if is_chosen(again.secret, *place, 0.25)} == mine
        assert all(is_chosen(again.secret, *place, 1.0) for place in jobs)


def test_a_days_deposits_count_once_each_and_no_longer(tmp_path: Path) -> None:
    with closing(RecheckJournal(tmp_path)) as journal:
        journal.lock_deposit(1, b"b", 0, 1000.0, 10**30)
        journal.lock_deposit(1, b"b", 0, 2000.0, 10**30)
        journal.lock_deposit(1, b"c", 0, 1500.0, 5)
        assert journal.spent(1600.0) == 10**30 + 5
        assert journal.spent(1600.0, but=(1, b"b", 0)) == 5
        assert journal.spent(1000.0 + DAY_SECONDS) == 5


def watcher(scene: Scene, cast: Cast, directory: Path, sender: Any, **changes: Any) -> tuple[Rechecker, RecheckJournal]:
    """A recheck of every job, whose patience is short."""
    client, journal = RunCoordinators([scene.url]), RecheckJournal(directory)
    runs = Runs(client, scene.chain.deployment, directory / "weights", (scene.origin_url,))
    options = {"share": 1.0, "budget": 1000 * TOKEN, "patience_seconds": 2.0} | changes
    made = Rechecker(scene.chain, sender, runs, client, journal, run=scene.run, **options)
    cast.closing.extend([made.close, runs.close, client.close, journal.close])
    return made, journal


def until_checked(rechecker: Rechecker, journal: RecheckJournal, jobs: int) -> None:
    for _ in range(2000):
        rechecker.tick()
        if len(list(journal.jobs())) == jobs:
            return
    raise AssertionError("not checked in time")


def test_a_wrong_verdict_is_appealed_as_predicted_and_lazy_jurors_are_named(
    make_scene: Callable[..., Scene], cast: Cast, tmp_path: Path
) -> None:
    scene = make_scene(validators=4, committee=1, appeal_seats=3, challenge_seconds=3600)
    for juror in scene.jurors:
        lie_in_first_committee(juror.validator)
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    (liar,) = {revealed.juror for revealed in scene.reveals()}
    sender = cast.sender("watcher")
    drip(sender, 100 * TOKEN).carry_out("drip")

    dry, said = watcher(scene, cast, tmp_path / "dry", sender, dry_run=True)
    until_checked(dry, said, 2)
    (planned,) = (one.outcome for one in said.jobs() if one.outcome != "agrees")
    assert planned.startswith("would send ")
    assert "expecting ACCEPTED" in planned
    assert scene.chain.latest().round(opened.round).appeals == 0
    frugal, refused = watcher(scene, cast, tmp_path / "frugal", sender, budget=TOKEN // 1000)
    until_checked(frugal, refused, 2)
    assert "budget" in next(one.outcome for one in refused.jobs() if one.job == 0)

    rechecker, journal = watcher(scene, cast, tmp_path / "real", sender)
    until_checked(rechecker, journal, 2)
    disputed = next(one for one in journal.jobs() if one.job == 0)
    assert (disputed.stands, disputed.found) == ("FRAUD", "ACCEPTED")
    assert disputed.outcome.startswith("appealed as number 2, expecting ACCEPTED")
    assert {(one.juror, one.shown) for one in journal.jurors()} == {(liar, SHOWN)}, "it ran the model, and lied"
    scene.tick_until(2, State.SETTLED)
    decided = decision_on(scene.chain, 2)
    assert decided is not None
    assert (decided.verdict, decided.decided) == (Verdict.ACCEPTED, True)
    profit = decided.awarded - decided.fees - decided.forfeited
    assert f"a profit of {tokens(profit)}" in disputed.outcome
    assert profit > 0
    listed = CliRunner().invoke(app, ["list", "--json"], env=environment(scene, tmp_path))
    assert listed.exit_code == 0, listed.output
    assert {each["outcome"] for each in json.loads(listed.stdout)["jobs"]} == {one.outcome for one in journal.jobs()}


def environment(scene: Scene, directory: Path) -> dict[str, str]:
    """Settings of the same as variables."""
    shared = scene.environment(directory)
    given = {name.replace("VALIDATOR", "RECHECK"): value for name, value in shared.items()}
    return given | {"ASSIZE_RECHECK_RUN": str(scene.run), "ASSIZE_RECHECK_STATE_DIR": str(directory / "real")}


def lie_in_first_committee(validator: Any) -> None:
    """Makes a juror condemn job 0 unless it sits on an appeal."""
    findings = validator.findings

    def lying(round_: Any) -> list[Any]:
        found = findings(round_)
        if round_.followed.appeal:
            return list(found)
        invented = Finding(Reason.SAMPLING_FRAUD, "a token is not the seeded choice", 0, 9.0, 0.5)
        bent = replace(found[0].evidence, reason=Reason.SAMPLING_FRAUD, findings=(invented,))
        return [replace(found[0], evidence=bent), *found[1:]]

    validator.findings = lying


def test_an_honest_round_is_left_alone_and_bundles_that_are_hidden_or_anothers_are_named(
    make_scene: Callable[..., Scene], cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make_scene()
    shower, namer, hider = scene.jurors
    opened = scene.open()

    def name_anothers(round_: Any, judgements: Any) -> Any:
        with closing(VoteJournal(shower.directory)) as journal:
            shown = journal.find(VoteKey(opened.round, 0, scene.beacon))
            data = None if shown is None else journal.evidence(shown.vote.evidence_root)
        if shown is None or data is None:
            return None  # asks again in the next tick
        with closing(VoteJournal(namer.directory)) as own:
            return own.record(VoteKey(opened.round, 0, scene.beacon), shown.vote, data)

    namer.validator._vote = name_anothers  # type: ignore[method-assign]
    honest, edited = scene.work(opened)
    scene.submit(opened, [honest, scene.edit(edited)], {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    scene.settle(opened)
    (root,) = (one.evidence_root for one in scene.reveals() if one.juror == hider.node)
    (scene.files / "evidence" / f"0x{root.hex()}").unlink()
    rechecker, journal = watcher(scene, cast, tmp_path / "watcher", cast.sender("watcher"))
    until_checked(rechecker, journal, 2)
    assert {(one.job, one.found, one.outcome) for one in journal.jobs()} == {
        (0, "ACCEPTED", "agrees"),
        (1, "FRAUD", "agrees"),
    }
    shown = {one.juror: one.shown for one in journal.jurors()}
    assert "cannot be had" in shown.pop(hider.node)
    assert f"the bundle is of juror {shower.node} " in shown.pop(namer.node)
    assert shown == {shower.node: SHOWN}

    # The same as a process, from settings alone.
    place = environment(scene, tmp_path) | {"ASSIZE_RECHECK_SHARE": "1", "ASSIZE_RECHECK_PATIENCE_SECONDS": "1"}
    Keystores(tmp_path / "keystores").create("juror", PASSWORD, scrypt_n=2**4)
    (tmp_path / "password").write_text(PASSWORD)
    place["ASSIZE_RECHECK_PASSWORD_FILE"] = str(tmp_path / "password")
    words = [sys.executable, "-m", "assize", "recheck", "run"]
    with (
        subprocess.Popen(words, env=os.environ | place, cwd=ROOT, stderr=subprocess.DEVNULL) as process,
        closing(RecheckJournal(tmp_path / "real")) as journal,
    ):
        give_up = time.monotonic() + 60
        while len(list(journal.jobs())) < 2 and time.monotonic() < give_up:
            time.sleep(0.1)
        process.terminate()
        assert process.wait(30) == 0
        assert {one.found for one in journal.jobs()} == {"ACCEPTED", "FRAUD"}

    def break_down(*_: object) -> None:
        raise ValueError("hostile work")

    monkeypatch.setattr("validator.recheck.rechecker.examine", break_down)
    broken, journal = watcher(scene, cast, tmp_path / "broken", cast.sender("broken"))
    until_checked(broken, journal, 2)
    assert {one.outcome for one in journal.jobs()} == {"judging failed here"}


def test_every_lazy_juror_is_named_in_its_first_round(
    make_scene: Callable[..., Scene], cast: Cast, tmp_path: Path
) -> None:
    kinds = (AcceptsUnread, InventsEvidence, HidesBundle, CopiesEvidence)
    scene = make_scene(validators=5, kinds=kinds, committee=5)
    unread, inventor, hider, copier, honest = scene.jurors

    def overheard(round_: int) -> Evidence | None:
        key = VoteKey(round_, 0, scene.beacon)
        with closing(VoteJournal(honest.directory)) as journal:
            vote = journal.find(key)
            data = None if vote is None else journal.evidence(vote.vote.evidence_root)
        return None if data is None else parse_signed(data).evidence

    copier.validator.overheard = overheard  # type: ignore[attr-defined]
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    assert scene.chain.latest().round(opened.round).accepted == 0b11, "all five say what is true"
    assert {(one.accept, one.fraud) for one in scene.reveals()} == {(0b11, 0)}
    roots = [one.evidence_root for one in scene.reveals() if one.juror != hider.node]
    while not all((scene.files / "evidence" / f"0x{root.hex()}").is_file() for root in roots):
        scene.tick()
    rechecker, journal = watcher(scene, cast, tmp_path / "watcher", cast.sender("watcher"))
    until_checked(rechecker, journal, 2)
    shown = {one.juror: one.shown for one in journal.jurors()}
    assert shown.pop(honest.node) == SHOWN
    counts = {one.juror: (one.equal + one.near, one.apart) for one in journal.jurors()}
    assert (counts[honest.node], counts[inventor.node], counts[hider.node]) == ((16, 0), (0, 16), (0, 0))
    assert "accepted without measurements" in shown.pop(unread.node)
    assert "cannot be had" in shown.pop(hider.node)
    assert "not that of a prefill in 16 of 16 rollouts" in shown.pop(inventor.node)
    assert "not that of a prefill in 16 of 16 rollouts" in shown.pop(copier.node)
    assert {one.outcome for one in journal.jobs()} == {"agrees"}
