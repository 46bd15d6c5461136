"""A version goes out once, whatever is interrupted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from protocol.broadcast import publishing
from protocol.chain.structs import Consumption
from protocol.errors import Misconfigured, Rejected
from protocol.wire import manifest
from protocol.wire.reasons import Reason
from tests.checkpoints import CHANGES
from tests.trainer.movement import stepped
from tests.trainer.scene import Scene
from trainer.inbox import Inbox
from trainer.policy import Policy
from trainer.publish import DIRECTORIES_KEPT


def trained(policy: Policy, inbox: Inbox) -> Policy:
    """A policy after one training step on the groups at hand."""
    stepped(policy, inbox.groups(), 1)
    return policy


def test_the_model_the_run_was_opened_with_is_served_and_not_announced(scene: Scene, tmp_path: Path) -> None:
    publisher, held = scene.publisher(tmp_path / "trainer")
    with held:
        publisher.publish(scene.policy(), (), {})
        assert publisher.store.latest(scene.swarm.run) == 0
        assert publisher.newest_version() == 0
    assert scene.published() == []


def test_a_version_is_announced_once_with_its_jobs_and_served_before(scene: Scene, tmp_path: Path) -> None:
    round_ = scene.round({0: Reason.ACCEPTED, 1: Reason.ACCEPTED})
    policy = scene.policy()
    inbox = scene.inbox(policy)
    inbox.poll(0)
    trained(policy, inbox)
    consumed = (Consumption(round_, 0b11),)
    publisher, held = scene.publisher(tmp_path / "trainer")
    with held:
        publisher.publish(policy, consumed, {})
        publisher.publish(policy, consumed, {})
    (event,) = scene.published()
    directory = tmp_path / "trainer" / "versions" / "1"
    assert (event.version, event.manifest_root) == (1, manifest.from_directory(directory, 1).root)
    assert scene.chain.latest().round(round_).consumed == 0b11
    signed = publisher.store.manifest(scene.swarm.run, 1, event.manifest_root)
    assert signed is not None
    assert publisher.store.missing(signed) == []


def test_other_weights_for_a_version_that_is_out_are_refused(scene: Scene, tmp_path: Path) -> None:
    scene.round({0: Reason.ACCEPTED, 1: Reason.ACCEPTED})
    policy = scene.policy()
    inbox = scene.inbox(policy)
    inbox.poll(0)
    publisher, held = scene.publisher(tmp_path / "trainer")
    with held:
        publisher.publish(trained(policy, inbox), (), {})
    other = scene.policy()
    other.version = 1
    publisher, held = scene.publisher(tmp_path / "other")
    with held, pytest.raises(Rejected, match="another manifest root"):
        publisher.publish(other, (), {})


def test_only_the_last_directories_are_kept(scene: Scene, tmp_path: Path) -> None:
    policy = scene.policy()
    publisher, held = scene.publisher(tmp_path / "trainer")
    with held:
        for version in range(1, DIRECTORIES_KEPT + 3):
            policy.version = version
            publisher.publish(policy, (), {})
    kept = sorted(int(path.name) for path in (tmp_path / "trainer" / "versions").iterdir())
    assert kept == list(range(3, DIRECTORIES_KEPT + 3))


def test_a_version_that_the_rules_do_not_allow_is_not_published(scene: Scene, tmp_path: Path) -> None:
    policy = scene.policy()
    publisher, held = scene.publisher(tmp_path / "trainer")
    policy.version = 1
    with held:
        for change, words in CHANGES.values():
            directory = tmp_path / "trainer" / "versions" / "1"
            policy.save_weights(directory, {})
            change(directory)
            with pytest.raises(Misconfigured, match="version 1 is not published") as refused:
                publisher.publish(policy, (), {})
            assert words in str(refused.value)
            shutil.rmtree(directory)
        assert publisher.store.latest(scene.swarm.run) is None
        publisher.publish(policy, (), {})
    (event,) = scene.published()
    assert event.version == 1


def test_of_a_large_model_the_origin_keeps_what_the_trainer_may_need(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "KEPT_BYTES", 1)
    policy = scene.policy()
    publisher, held = scene.publisher(tmp_path / "trainer")
    with held:
        for version in range(1, 7):
            policy.version = version
            publisher.publish(policy, (), {})
        kept = [signed.manifest.version for signed in publisher.store.versions(scene.swarm.run)]
    needed = scene.swarm.rules.async_level + 1
    assert kept == list(range(7 - needed, 7))
