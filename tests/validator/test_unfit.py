"""A version that the run's rules do not allow: void for every juror alike, and nothing against a node."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from protocol.broadcast.version_store import VersionStore
from protocol.chain.structs import State
from protocol.errors import Unavailable
from protocol.transport.run_coordinators import RunCoordinators
from protocol.wire import evidence
from protocol.wire.reasons import Reason
from tests.checkpoints import CHANGES
from tests.validator.scene import Scene
from validator.journal import VoteJournal
from validator.judging.claims import Claim
from validator.queue.checker import Checker
from validator.queue.exchange import Exchange
from validator.queue.orders import Kind
from validator.review.replay import replay, sentences

SHOWN = ("a second file of tensors", "another tokenizer", "another rope_theta", "pickled weights")


def test_jobs_of_an_ambiguous_version_are_void_for_restarted_and_running_jurors_alike(
    make_scene: Callable[..., Scene], model_directory: Path, origin: tuple[VersionStore, str], tmp_path: Path
) -> None:
    scene = make_scene()
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    scene.settle(opened)
    for version, what in enumerate(SHOWN, start=1):
        directory = shutil.copytree(model_directory, tmp_path / str(version))
        change, words = CHANGES[what]
        change(directory)
        scene.publish(version, directory, origin[0])
        restarted = scene.jurors[version % 3]
        restarted.close()
        restarted.validator, restarted.close = restarted.build()
        opened = scene.open(version)
        jobs = scene.work(opened)
        scene.submit(opened, jobs, {0})  # nobody needs the artifacts: the other one is served nowhere
        scene.tick_until(opened.round, State.TALLIED)
        tallied = scene.chain.latest().round(opened.round)
        assert (tallied.accepted, tallied.fraud) == (0, 0)
        reveals = [revealed for revealed in scene.reveals() if revealed.round == opened.round]
        assert [revealed.reasons for revealed in reveals] == [bytes([Reason.UNFIT_CHECKPOINT] * 2)] * 3, what
        for revealed in reveals:
            juror = next(one for one in scene.jurors if one.node == revealed.juror)
            signed = evidence.parse_signed(VoteJournal(juror.directory).evidence(revealed.evidence_root))
            for job in signed.evidence.jobs:
                assert job.measurements is None, "no record grows by it"
                assert words in job.findings[0].detail
                assert str(juror.directory) not in job.findings[0].detail
        scene.settle(opened)
    replayed = replay(scene.settings(tmp_path), signed.canonical)
    assert replayed.confirmed, list(sentences(replayed))
    scene.publish(len(SHOWN) + 1, model_directory, origin[0])
    opened = scene.open(len(SHOWN) + 1)
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    assert scene.chain.latest().round(opened.round).accepted == 0b11


def test_background_workers_answer_the_same_without_any_artifact(
    make_scene: Callable[..., Scene], model_directory: Path, origin: tuple[VersionStore, str], tmp_path: Path
) -> None:
    scene = make_scene()
    directory = shutil.copytree(model_directory, tmp_path / "1")
    CHANGES["another tokenizer"][0](directory)
    scene.publish(1, directory, origin[0])
    deployment = scene.chain.deployment
    claim = Claim(
        *(deployment.chain_id, deployment.rounds, 7, 0, scene.worker_node, bytes(32), bytes(32)),
        *(scene.manifest_root, 1, 1, bytes(32), f"{scene.url}/artifacts/", False),
    )
    order = scene.order(1, (claim,))
    client, exchange = RunCoordinators(()), Exchange("redis://127.0.0.1:1/0")
    with closing(Checker(exchange, client, tmp_path / "weights", (scene.origin_url,))) as checker:
        give_up = time.monotonic() + 30
        while (answer := checker.answers(order, [claim])[0]).kind is not Kind.JUDGED and time.monotonic() < give_up:
            time.sleep(0.01)
        assert answer.evidence is not None
        assert answer.evidence.reason is Reason.UNFIT_CHECKPOINT
        assert "tokenizer.json" in answer.evidence.findings[0].detail


def test_weights_that_nobody_serves_are_waited_for_and_not_called_unfit(
    make_scene: Callable[..., Scene], model_directory: Path, origin: tuple[VersionStore, str], tmp_path: Path
) -> None:
    scene = make_scene()
    scene.publish(1, model_directory, origin[0])
    for path in (origin[0].directory / "runs").glob("*/*/"):
        shutil.rmtree(path)
    juror = scene.jurors[0].validator
    juror.tick()
    terms = juror._rounds.runs[scene.run]
    weights = juror._runs.context(scene.run, terms).weights
    with pytest.raises(Unavailable, match="could not be fetched"):
        weights.wait_for(1, scene.manifest_root, 1.0)
    assert weights.refusal(1, scene.manifest_root) is None
