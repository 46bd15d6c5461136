"""``assize validator watch``: the view from any state, and what a real validator publishes of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.chain.structs import State
from protocol.node.activity import HEALTH_FILE
from protocol.node.progress import progress_line
from protocol.node.watching import lines_of
from tests.conftest import ROOT
from tests.validator.scene import Scene
from validator.watching import SlotContest, ValidatorLook, validator_view

NOW = 1_800_000_100
TOKEN = 10**18
RECORD: dict[str, Any] = {
    "seats": 40,
    "revealed": 39,
    "abstained": 1,
    "absent": 0,
    "overturned": 0,
    "agreed": 397,
    "judged": 400,
    "votes": {"accepted": 390, "fraud": 8, "void": 2},
    "fees": {"day": "2027-01-15", "wei": str(3 * TOKEN // 2), "total_wei": str(12 * TOKEN)},
}
ACTIVITY: dict[str, Any] = {
    "doing": "judging",
    "why": "round 97, 3 of 16 jobs judged",
    "since": NOW - 5,
    "started": NOW - 86_400,
    "seconds": {"judging": 21_600.0, "waiting": 64_800.0},
    "node": 4,
    "record": RECORD,
    "runs": [1],
    "versions": {"1": 12},
    "seats": [
        {"round": 97, "run": 1, "appeal": False, "phase": "to commit", "deadline": NOW + 42, "jobs": 16},
        {"round": 2**32 + 5, "run": 1, "appeal": True, "phase": "to reveal", "deadline": NOW + 90, "jobs": 1},
    ],
}
LOOK = ValidatorLook(
    health={"daemon": "validator", "pid": 4, "at": NOW, "problem": "", "activity": ACTIVITY},
    alive=True,
    bond=60 * TOKEN,
    needed=50 * TOKEN,
    slot=3,
    holds=True,
    contest=None,
    strikes={1: 0},
    max_strikes=8,
    credits=7 * TOKEN,
)


def test_a_seated_validator_at_80_columns() -> None:
    assert lines_of(validator_view(LOOK, NOW), 80) == [
        "validator: node 4",
        "now              judging: round 97, 3 of 16 jobs judged, 5 s",
        "at work          25 % of 1 d",
        "seats so far     40, absent 0, abstained 1, overturned 0",
        "votes on jobs    accepted 390  void 2  fraud 8",
        "agreement        99.2 % of 400 settled jobs",
        "strikes          none",
        "fees today       1.50 ASZ, 12.00 ASZ in all",
        "owner's credits  7.00 ASZ",
        "bond             60 ASZ, 50 ASZ needed",
        "bond margin      10 ASZ",
        "slot             3",
        "versions loaded  12 of run 1",
        "",
        "     round  kind    jobs  phase      until                    left",
        "        97  round     16  to commit  2027-01-15 08:02:22 UTC  42 s",
        "4294967301  appeal     1  to reveal  2027-01-15 08:03:10 UTC  1 min 30 s",
    ]


def test_at_140_columns_nothing_is_wider() -> None:
    lines = lines_of(validator_view(LOOK, NOW), 140)
    assert len(lines) == 11
    assert all(len(line) <= 140 for line in lines)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alive": False}, "not running; last sign of life at 2027-01-15 08:01:40 UTC"),
        ({"bond": 49 * TOKEN}, "not drawn: add 1 ASZ with assize stake deposit"),
        ({"holds": False}, "slot 3, not held"),
        ({"strikes": {1: 2, 5: 0}}, "strikes 2 of 8 in run 1"),
        (
            {"contest": SlotContest(9, 15 * TOKEN, NOW + 7200)},
            "node 9 contests the slot: add 15 ASZ with assize stake deposit until 2027-01-15 10:01:40 UTC, in 2 h",
        ),
        ({"health": LOOK.health | {"activity": {"node": 4}}}, "votes on jobs none yet"),
        (
            {
                "health": LOOK.health
                | {"activity": ACTIVITY | {"fetching": {"1": progress_line("version 13", 10**6, 4 * 10**6, 2.0)}}}
            },
            "fetching run 1, version 13: 25 %, 1.0 MB of 4.0 MB after 2 s, 500.0 kB/s, 6 s left",
        ),
    ],
)
def test_every_state_has_its_words(change: dict[str, Any], words: str) -> None:
    assert words in " ".join(" ".join(lines_of(validator_view(replace(LOOK, **change), NOW), 80)).split())


def test_a_pipes_line_does_not_change_while_nothing_happens() -> None:
    assert validator_view(LOOK, NOW).line == validator_view(LOOK, NOW + 5).line


def test_a_validator_publishes_its_seats_votes_and_fees(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene = make_scene()
    opened = scene.open()
    honest, edited = scene.work(opened)
    scene.submit(opened, [honest, scene.edit(edited)], {0, 1})
    activity = scene.jurors[0].validator.activity
    doings, phases = set[str](), set[str]()

    def seen() -> None:
        told = activity.told()
        doings.add(told["doing"])
        phases.update(seat["phase"] for seat in told.get("seats", []))

    activity.changed = seen
    scene.tick_until(opened.round, State.TALLIED)
    assert {"judging", "waiting"} <= doings
    assert phases & {"to commit", "to reveal", "voted"}
    scene.settle(opened)
    scene.tick()
    record = activity.told()["record"]
    assert record["votes"] == {"accepted": 1, "fraud": 1}
    assert (record["seats"], record["revealed"], record["agreed"], record["judged"]) == (1, 1, 2, 2)
    assert int(record["fees"]["total_wei"]) == 1000
    assert activity.told()["versions"] == {scene.run: 0}

    state = tmp_path / "state"
    state.mkdir()
    health = {"daemon": "validator", "pid": os.getpid(), "at": NOW, "problem": "", "activity": activity.told()}
    (state / HEALTH_FILE).write_text(json.dumps(health))
    words = [sys.executable, "assize.py", "validator", "watch", "--once", "--json"]
    environment = os.environ | scene.environment(tmp_path)
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["node"], told["alive"], told["holds_slot"]) == (scene.jurors[0].node, True, True)
    assert int(told["margin_wei"]) == int(told["bond_wei"]) - int(told["needed_wei"])
