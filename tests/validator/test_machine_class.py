"""Machines of another determinism class than a run's: told before they join, and gone soon if they have."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from protocol.chain.structs import State
from protocol.chain.writing.actions import join_run
from protocol.node.profile_edit import set_network
from protocol.wire.api import ChainIdentity, RunDescription
from protocol.wire.rules import ExactRules, Rules
from tests.conftest import ROOT, until
from tests.validator.conftest import RULES
from tests.validator.scene import Scene
from tests.validator.test_exact import exact_rules
from validator.commands import app as validator_app
from validator.doctor import diagnose
from validator.dry_run import build
from worker.commands import app as worker_app


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own for the canaries of a test."""
    monkeypatch.setenv("ASSIZE_STATE_DIR", str(tmp_path / "kept"))


FOREIGN = RULES.model_copy(
    update={
        "model": RULES.model.model_copy(
            update={"exact": ExactRules(window=16, canary="0x" + "ab" * 32, made_by="another machine")}
        )
    }
)
"""Rules of a run of another determinism class than any machine's."""


def test_a_validator_of_another_class_leaves_the_run_and_abstains_from_the_seat_it_has(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(rules=FOREIGN, one_key=True)
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    with capture_logs() as lines:
        scene.tick_until(opened.round, State.TALLIED)
    assert {revealed.reasons for revealed in scene.reveals()} == {b"\xff"}
    assert {revealed.juror for revealed in scene.reveals()} == {juror.node for juror in scene.jurors}
    for juror in scene.jurors:
        assert not any(scene.chain.latest().joined_at(scene.run, juror.node))
    said = [line for line in lines if line["log_level"] == "warning" and line["event"] == "another_class"]
    assert len(said) == 3, "each says so once"
    assert "the run of 0xabababababababab… (another machine)" in said[0]["error"]
    assert said[0]["then"] == "leaves the run"
    assert not [line for line in lines if line["log_level"] == "error"]


def test_a_validator_that_may_not_leave_says_once_what_its_owner_types_and_leaves_what_it_joined_again(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(rules=FOREIGN, validators=1, committee=1)
    (juror,) = scene.jurors
    with capture_logs() as lines:
        while not any(line["event"] == "another_class" for line in lines):
            scene.tick()
        for _ in range(5):
            scene.tick()
        (said,) = [line for line in lines if line["log_level"] == "warning"]
    owner = juror.owner.address
    assert said["then"] == f"abstains until {owner} types: assize run leave {scene.run} {juror.node}"
    assert any(scene.chain.latest().joined_at(scene.run, juror.node))


def test_a_run_that_was_joined_again_is_left_again(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(rules=FOREIGN, validators=1, committee=1, one_key=True)
    (juror,) = scene.jurors
    for _ in range(2):
        while any(scene.chain.latest().joined_at(scene.run, juror.node)):
            scene.tick()
        scene.tick()
        join_run(juror.owner, scene.run, juror.node).carry_out(f"join {secrets.token_hex(4)}")


def test_the_doctor_and_a_command_say_that_this_machine_is_of_another_class(
    make_scene: Callable[..., Scene], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make_scene(rules=FOREIGN, validators=1, committee=1)
    settings = scene.settings(tmp_path)
    found = {one.name: one for one in diagnose(settings)}
    words = "the run of 0xabababababababab… (another machine): serve another run, or use the software and the number"
    assert found[f"run {scene.run}"].ok
    examined = found[f"class of run {scene.run}"]
    assert (examined.ok, words in examined.detail) == (False, True), examined
    for app in (validator_app, worker_app):
        typed = ["class", str(scene.run), "--addresses", str(settings.addresses), "--rpc", settings.rpc_url]
        refused = CliRunner().invoke(app, [*typed, "--source", scene.origin_url])
        assert (refused.exit_code, words in refused.output) == (2, True), refused.output
        assert len(refused.output.strip().splitlines()) == 1


def test_a_dry_run_says_so_once_and_would_abstain(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene, told = make_scene(rules=FOREIGN, validators=1, committee=1), list[dict[str, Any]]()
    loop, close = build(scene.settings(tmp_path), told.append)
    opened = scene.open()
    scene.submit(opened, scene.work(opened), {0, 1})
    with capture_logs() as lines:
        until(lambda: [loop.tick()] and told, 60, "the vote")
        for _ in range(5):
            loop.tick()
    close()
    assert [vote["vote"] for vote in told] == ["abstention"]
    assert [line["event"] for line in lines if line["log_level"] in ("warning", "error")] == ["another_class"]


def describe(scene: Scene) -> None:
    """Has the scene's coordinator name the sources of its weights."""
    deployment, terms = scene.chain.deployment, scene.chain.latest().run(scene.run).terms
    contracts = {
        name.lower(): deployment.address_of(name) for name in ("Registry", "Market", "Rounds", "Credits", "Token")
    }
    described = RunDescription(
        run=scene.run,
        rules_hash="0x" + terms.rules_hash.hex(),
        rules={},
        chain=ChainIdentity(chain_id=scene.chain.chain_id, **contracts),
        trainer=terms.trainer,
        coordinator=terms.coordinator,
        sources=[scene.origin_url],
    )
    (scene.files / "runs").mkdir()
    (scene.files / "runs" / str(scene.run)).write_text(described.model_dump_json())


@pytest.mark.parametrize("role", ["worker", "validator"])
@pytest.mark.parametrize("foreign", [True, False])
def test_joining_is_refused_before_anything_is_sent_where_the_machine_is_of_another_class(
    make_scene: Callable[..., Scene], model_directory: Path, tmp_path: Path, role: str, foreign: bool
) -> None:
    own: Rules = exact_rules(model_directory, "both")
    scene = make_scene(rules=FOREIGN if foreign else own, validators=1, committee=1)
    describe(scene)
    place = tmp_path / "place"
    place.mkdir()
    (place / "password").write_text("pw\n")
    scene.chain.deployment.save(place / "addresses.json")
    set_network(place / "assize.toml", "here", scene.chain.rpc.url, place / "addresses.json")
    words = ("join", role, "--run", str(scene.run), "--wallet", "vera", "--password-file", "password", "--yes")
    environment = {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "OMP_NUM_THREADS": "1"}
    before = scene.chain.head().number, scene.chain.latest().node_count()
    done = subprocess.run(
        [sys.executable, str(ROOT / "assize.py"), *words, "--no-start"],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    after = scene.chain.head().number, scene.chain.latest().node_count()
    if not foreign:
        assert done.returncode == 0, done.stderr
        assert after[1] == before[1] + 1
        return
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "the run of 0xabababababababab… (another machine): serve another run" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert after == before
    assert not (place / "home").exists() or not list((place / "home").rglob("vera*")), "no key was made"
