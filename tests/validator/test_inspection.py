"""`assize validator check` and `replay`, against work that was really submitted, judged and voted on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from protocol.chain.events import RoundOpened
from protocol.chain.structs import State
from protocol.errors import Rejected, Unavailable
from protocol.wire import evidence
from protocol.wire.evidence import SignedEvidence
from protocol.wire.reasons import Reason
from tests.validator.scene import Scene
from validator.commands import app
from validator.review.inspection import inspect
from validator.review.judgement_report import lines, rows, summary, worst
from validator.review.replay import replay, sentences


def judged(scene: Scene) -> tuple[RoundOpened, list[Any]]:
    """A round with one honest job and one with an edited token, voted on; its evidence is published."""
    opened = scene.open()
    honest, edited = scene.work(opened)
    jobs = [honest, scene.edit(edited)]
    scene.submit(opened, jobs, {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    scene.settle(opened)
    return opened, jobs


def bundle_of(scene: Scene, opened: RoundOpened) -> bytes:
    """The first juror's, as it is served."""
    root = next(revealed.evidence_root for revealed in scene.reveals() if revealed.round == opened.round)
    return (scene.files / "evidence" / f"0x{root.hex()}").read_bytes()


def run(scene: Scene, directory: Path, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words), env=scene.environment(directory) | {"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_checking_by_hand_finds_what_the_daemon_finds(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene = make_scene()
    opened = scene.open()
    honest, edited = scene.work(opened)
    lie = scene.edit(edited)
    scene.submit(opened, [honest, lie], {0, 1})
    settings = scene.settings(tmp_path)
    inspection = inspect(settings, honest.file, opened.round)
    assert inspection.reason is Reason.ACCEPTED
    assert {line["passed"] for line in lines(inspection)} == {True}
    inspection = inspect(settings, lie.file, opened.round)
    assert inspection.reason is Reason.SAMPLING_FRAUD
    assert summary(inspection.judgement)["verdict"] == "sampling_fraud"
    assert rows(inspection.judgement)[0]["observed"] > rows(inspection.judgement)[0]["limit"]
    broken = {line["check"] for line in lines(inspection) if not line["passed"]}
    assert "seeded sampling" in broken
    assert "prompts" not in broken
    seen = worst(inspection)
    assert seen is not None
    middle = max(seen["tokens"], key=lambda token: token["margin"])
    # The edit is at position 2; what follows it was sampled after another token, and may fall shorter still.
    assert middle["position"] >= 2
    assert middle["margin"] == seen["largest margin (logits)"]
    assert middle["token"] != middle["seeded choice"]
    garbage = inspect(settings, b"garbage", opened.round, job=0)
    assert garbage.reason is Reason.WRONG_ROOT
    assert worst(garbage) is None
    assert [line["passed"] for line in lines(garbage)][:3] == [False, None, None]
    assert inspect(settings, edited.file, opened.round).reason is Reason.WRONG_ROOT
    with pytest.raises(Rejected, match="no round 99"):
        inspect(settings, honest.file, 99)
    with pytest.raises(Rejected, match="job 7 of round 1 was not submitted"):
        inspect(settings, honest.file, opened.round, job=7)


def test_activations_are_not_examined_without_proofs_to_examine(
    make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    scene = make_scene()
    opened = scene.open()
    honest, cut = scene.work(opened)
    bare = scene.forge(cut, 0, proofs=())
    scene.submit(opened, [honest, bare], {0, 1})
    inspection = inspect(scene.settings(tmp_path), bare.file, opened.round)
    assert inspection.reason is Reason.SHAPE
    shown = {line["check"]: (line["passed"], line["measured"]) for line in lines(inspection)}
    assert shown["activations"] == (None, "not examined: an earlier check failed")
    assert shown["seeded sampling"][0]


def test_the_commands_print_what_a_person_reads_and_exit_by_the_verdict(
    make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    scene = make_scene()
    opened, jobs = judged(scene)
    for name, job in zip(("honest", "lie"), jobs, strict=True):
        (tmp_path / name).write_bytes(job.file)
    (tmp_path / "bundle").write_bytes(bundle_of(scene, opened))
    number = ("--round", str(opened.round))
    code, said = run(scene, tmp_path, "check", str(tmp_path / "honest"), *number)
    assert (code, "every check passed" in said, "FAILED" in said) == (0, True, False)
    code, said = run(scene, tmp_path, "check", str(tmp_path / "lie"), *number)
    assert code == 1
    assert "by more than any honest engine gives" in said
    assert "seeded choice" in said
    code, said = run(scene, tmp_path, "check", str(tmp_path / "lie"), *number, "--json")
    told = json.loads(said)
    assert (code, told["verdict"]) == (1, "sampling_fraud")
    assert len(told["measurements"]["margin_max_N"]) == scene.court.rules.rollouts_per_job
    code, said = run(scene, tmp_path, "replay", str(tmp_path / "bundle"))
    assert (code, "all 2 verdicts are the same here" in said) == (0, True)
    code, said = run(scene, tmp_path, "replay", str(tmp_path / "bundle"), "--json")
    assert (code, json.loads(said)["confirmed"]) == (0, True)
    assert run(scene, tmp_path, "replay", str(tmp_path / "nothing"))[0] == 2
    assert run(scene, tmp_path, "replay", str(tmp_path / "honest"))[0] == 1


def test_a_bundle_replayed_from_files_alone_comes_to_the_same_to_the_bit(
    make_scene: Callable[..., Scene], tmp_path: Path, model_directory: Path
) -> None:
    scene = make_scene()
    opened, _ = judged(scene)
    data, artifacts = bundle_of(scene, opened), tmp_path / "kept"
    (scene.files / "artifacts").rename(artifacts)
    settings = scene.settings(tmp_path)
    with pytest.raises(Unavailable, match="--artifacts"):
        replay(settings, data, None, model_directory)
    replayed = replay(settings, data, artifacts, model_directory)
    assert replayed.confirmed
    assert [found.name for _, _, found in replayed.reasons] == ["ACCEPTED", "SAMPLING_FRAUD"]
    assert max(one.largest for one in replayed.differences if one.tolerance is not None) < 1e-4
    (artifacts / f"0x{evidence.parse_signed(data).evidence.jobs[0].root.hex()}").unlink()
    with pytest.raises(Unavailable, match="job 0"):
        replay(settings, data, artifacts, model_directory)


def forged(scene: Scene, data: bytes, key: Any, **changes: Any) -> SignedEvidence:
    """The bundle with other contents, signed by ``key``."""
    return evidence.sign(replace(evidence.parse_signed(data).evidence, **changes), key)


def test_what_contradicts_itself_or_the_chain_is_named(
    make_scene: Callable[..., Scene], tmp_path: Path, make_wallet: Callable[[str], Any]
) -> None:
    scene = make_scene()
    opened, _ = judged(scene)
    data, settings = bundle_of(scene, opened), scene.settings(tmp_path)
    bundle = evidence.parse_signed(data).evidence
    key = next(juror.key for juror in scene.jurors if juror.node == bundle.juror)
    honest, lie = bundle.jobs

    def said(signed: SignedEvidence) -> str:
        replayed = replay(settings, signed.canonical)
        assert not replayed.confirmed
        return "\n".join(sentences(replayed))

    assert "not by juror" in said(forged(scene, data, make_wallet("stranger")))
    assert "the vote of juror" in said(forged(scene, data, key, jobs=(honest,)))
    assert "about jobs [0], submitted were [0, 1]" in said(forged(scene, data, key, jobs=(honest,)))
    assert "the bundle's version is 4" in said(forged(scene, data, key, policy_version=4))
    assert "the bundle's thresholds" in said(forged(scene, data, key, thresholds={}))
    assert "no vote was revealed by juror 99" in said(forged(scene, data, key, juror=99))
    bent = replace(lie, reason=Reason.ACCEPTED)
    assert "its findings come to sampling_fraud" in said(forged(scene, data, key, jobs=(honest, bent)))
    assert "the bundle's units is 1" in said(forged(scene, data, key, jobs=(replace(honest, units_claimed=1), lie)))
    assert honest.measurements is not None
    doubled = replace(honest.measurements, up_N=honest.measurements.tokens_N + np.uint32(1))
    assert "than there are" in said(forged(scene, data, key, jobs=(replace(honest, measurements=doubled), lie)))
    with pytest.raises(Rejected, match="no round 77"):
        replay(settings, forged(scene, data, key, round=77).canonical)
    with pytest.raises(Rejected, match="JSON"):
        replay(settings, b"garbage")


def test_a_juror_that_lied_is_not_confirmed(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    """It condemns an honest job, consistently: only judging again shows it."""
    scene = make_scene()
    liar = scene.jurors[0]
    judge_honestly = liar.validator.findings

    def lying(round_: Any) -> list[Any]:
        found = judge_honestly(round_)
        finding = evidence.Finding(Reason.SAMPLING_FRAUD, "a token is not the seeded choice", 0, 9.0, 0.5)
        bent = replace(found[0].evidence, reason=Reason.SAMPLING_FRAUD, findings=(finding,))
        return [replace(found[0], evidence=bent), *found[1:]]

    liar.validator.findings = lying  # type: ignore[method-assign]
    opened, _ = judged(scene)
    root = next(revealed.evidence_root for revealed in scene.reveals() if revealed.juror == liar.node)
    data = (scene.files / "evidence" / f"0x{root.hex()}").read_bytes()
    replayed = replay(scene.settings(tmp_path), data)
    assert not replayed.confirmed
    assert f"round {opened.round}" in next(iter(sentences(replace(replayed, contradictions=("x",)))))
    assert "job 0: the bundle says sampling_fraud, this machine finds accepted" in list(sentences(replayed))


def shown_by(scene: Scene, opened: RoundOpened, juror: Any) -> bytes:
    """The bundle of one juror, as it is served."""
    found = (each for each in scene.reveals() if (each.round, each.juror) == (opened.round, juror.node))
    return (scene.files / "evidence" / f"0x{next(found).evidence_root.hex()}").read_bytes()


def test_jurors_that_did_not_run_the_model_are_found_by_their_fingerprints(
    make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    """One copies another's bundle, one invents its figures; both vote as the honest ones do."""
    scene = make_scene()
    honest, copier, inventor = scene.jurors
    followed = honest.validator.fingerprints
    copier.validator.fingerprints = followed  # type: ignore[method-assign]
    show_truly = inventor.validator.fingerprints

    def invented(*given: Any) -> Any:
        shown, chance = show_truly(*given), np.random.default_rng(1)
        sizes = [(one, float(one.projections.std())) for one in shown]
        return tuple(
            replace(one, projections=chance.normal(0, size, len(one.projections)).astype(np.float32))
            for one, size in sizes
        )

    inventor.validator.fingerprints = invented  # type: ignore[method-assign]
    opened, _ = judged(scene)
    settings, rollouts = scene.settings(tmp_path), scene.court.rules.rollouts_per_job
    truly = replay(settings, shown_by(scene, opened, honest))
    assert truly.confirmed
    assert [len(one.rollouts) for one in truly.fingerprints] == [rollouts, rollouts]
    assert all(one.same for one in truly.fingerprints)
    for cheat in (copier, inventor):
        replayed = replay(settings, shown_by(scene, opened, cheat))
        assert not replayed.contradictions
        assert not replayed.prefilled
        assert not replayed.confirmed
        # A row of each rollout: two rollouts are alike only if they are the same tokens.
        assert [len(one.apart) for one in replayed.fingerprints] == [rollouts, rollouts]
        assert f"not that of a prefill by juror {cheat.node}" in "\n".join(sentences(replayed))


def test_a_juror_that_accepts_unread_contradicts_itself(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene = make_scene()
    lazy = scene.jurors[0]
    read = lazy.validator.findings

    def unread(round_: Any) -> list[Any]:
        bare = {"reason": Reason.ACCEPTED, "findings": (), "measurements": None}
        return [replace(each, evidence=replace(each.evidence, **bare), rows=None) for each in read(round_)]

    lazy.validator.findings = unread  # type: ignore[method-assign]
    opened, _ = judged(scene)
    replayed = replay(scene.settings(tmp_path), shown_by(scene, opened, lazy))
    assert [f"job {job}: accepted without measurements" for job in (0, 1)] == list(replayed.contradictions)
