"""A dry run: what would be voted, by somebody without key, bond and node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.chain.structs import State
from tests.conftest import ROOT, until
from tests.validator.scene import Scene
from validator.dry_run import FOLDER, build, lines_of


def test_a_dry_run_says_what_the_committee_then_decides_and_sends_nothing(
    make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    scene = make_scene()
    words = {name: value for name, value in scene.environment(tmp_path).items() if "KEYSTORE" not in name}
    command = [sys.executable, "assize.py", "validator", "run", "--dry-run", "--json"]
    process = subprocess.Popen(command, cwd=ROOT, env=words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    opened = scene.open()
    honest, edited = scene.work(opened)
    scene.submit(opened, [honest, scene.edit(edited)], {0, 1})
    vote: dict[str, Any] = json.loads(process.stdout.readline())
    process.terminate()
    process.communicate()
    assert process.returncode == 0
    assert [path.relative_to(tmp_path / "state") for path in (tmp_path / "state").rglob("health.json")] == [
        Path(FOLDER, "health.json")
    ]
    scene.tick_until(opened.round, State.TALLIED)
    tallied = scene.chain.latest().round(opened.round)
    assert (vote["round"], int(vote["accept"], 16), int(vote["fraud"], 16)) == (1, tallied.accepted, tallied.fraud)
    accepted, refused = vote["jobs"]
    assert (accepted["reason"], refused["reason"]) == ("accepted", "sampling_fraud")
    assert refused["observed"] > refused["limit"] > 0
    first, second = lines_of(vote)
    assert first.endswith("would accept 1 of 2 jobs")
    assert "limit" in second


def test_a_round_that_ends_before_it_was_judged_is_too_late(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene, told = make_scene(), list[dict[str, Any]]()
    loop, close = build(scene.settings(tmp_path), told.append)
    opened = scene.open()
    until(lambda: [loop.tick()] and loop._begun, 30, "the round, once its run's rules are fetched")
    scene.submit(opened, scene.work(opened), {0, 1})
    scene.tick_until(opened.round, State.TALLIED)
    for _ in range(2):
        loop.tick()
    close()
    (late,) = told
    assert (late["round"], late["vote"], late["judged"], late["submitted"]) == (1, "too late", 0, 2)
    assert list(lines_of(late)) == ["round 1 of run 1, version 0: too late: 0 of 2 judged"]
