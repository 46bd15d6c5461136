"""Views in terminals of any width, in pipes and as JSON; and the activity that a daemon publishes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from protocol.errors import Misconfigured, Unavailable
from protocol.node.activity import WAITING, Activity, duty_cycle, read_health
from protocol.node.daemon import Daemon
from protocol.node.watching import Grid, Row, View, lines_of, with_problem
from protocol.times import spell
from tests.conftest import ROOT

HASH = "0x" + "ab" * 32
VIEW = View(
    title="worker: node 7, run 1",
    rows=(Row("now", "generating: round 97, 6 jobs, 3 s", "busy"), Row("root", HASH), Row("jobs today", "accepted 6")),
    notes=("round 96, job 3 void: a token differs from the seeded choice by more than the run tolerates",),
    line="generating",
    figures={"bond_wei": 5},
    grid=Grid(("round", "accepted"), (("97", "6"), ("96", "12"))),
)

PIPED = """
import itertools, sys
from protocol.node import watching
from protocol.node.watching import View, watch
from protocol.errors import Unavailable

watching.LOOK_SECONDS = 0.01
count = itertools.count()

def look():
    number = next(count)
    if number == 4:
        raise Unavailable("the RPC does not answer")
    if number == 7:
        raise KeyboardInterrupt
    return View("title", (), (), f"look {number // 2}\\x1b[2J", {"number": number})

watch(look, once=False, as_json=sys.argv[1] == "json")
"""


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_nothing_is_cut_at_any_width(columns: int) -> None:
    lines = lines_of(VIEW, columns)
    assert all(len(line) <= columns for line in lines)
    assert HASH in re.sub(r"\s|jobs today|accepted 6", "", "".join(lines)) or HASH in "".join(lines)
    words = " ".join(" ".join(lines).split())
    assert "round 96, job 3 void: a token differs" in words
    assert "now generating: round 97" in words


def test_a_wide_terminal_has_two_columns_and_a_narrow_one() -> None:
    assert lines_of(VIEW, 80)[:4] == [
        "worker: node 7, run 1",
        "now         generating: round 97, 6 jobs, 3 s",
        f"root        {HASH}",
        "jobs today  accepted 6",
    ]
    wide = lines_of(VIEW, 140)
    assert "now" in wide[1]
    assert "jobs today" in wide[1]


def test_a_grid_has_its_numbers_beneath_their_headings() -> None:
    assert lines_of(VIEW, 80)[5:8] == ["round  accepted", "   97         6", "   96        12"]


def test_what_fails_is_told_beside_the_last_look_once() -> None:
    twice = with_problem(with_problem(VIEW, "no answer"), "no answer yet")
    assert twice.notes == ("not up to date: no answer yet", *VIEW.notes)
    assert twice.line == "not up to date: no answer yet"
    assert twice.figures == {"bond_wei": 5, "problem": "no answer yet"}


def watched(how: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", PIPED, how]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pipe_gets_a_line_for_each_change_without_control_characters() -> None:
    assert watched("lines").splitlines() == [
        "look 0\\x1b[2J",
        "look 1\\x1b[2J",
        "not up to date: the RPC does not answer",
        "look 2\\x1b[2J",
        "look 3\\x1b[2J",
    ]


def test_a_watch_ends_quietly_once_nobody_reads_it() -> None:
    endless = PIPED.replace("number == 7", "number == 10_000")
    words = [sys.executable, "-c", endless, "json"]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_json_has_a_line_for_each_look() -> None:
    lines = [json.loads(line) for line in watched("json").splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2, 3, 3, 5, 6]
    assert lines[4]["problem"] == "the RPC does not answer"


def test_activity_counts_the_seconds_of_each_part() -> None:
    now = [100.0]
    activity = Activity(lambda: now[0])
    for what, seconds in (("generating", 2.0), (WAITING, 6.0), ("generating", 1.0), ("proving", 1.0)):
        now[0] += {"generating": 2.0, WAITING: 2.0, "proving": 1.0}.get(activity.told()["doing"], 0.0)
        activity.doing(what)
        now[0] = now[0] + 0 * seconds
    told = activity.told()
    assert told["seconds"] == {"starting": 0.0, "generating": 4.0, "waiting": 2.0, "proving": 0.0}
    assert (told["doing"], told["since"], told["started"]) == ("proving", 106, 100)
    assert duty_cycle(told["seconds"]) == pytest.approx(4 / 6)
    assert duty_cycle({"starting": 3.0}) is None


def test_an_activity_is_in_the_health_file_while_a_long_tick_goes_on(tmp_path: Path) -> None:
    activity, going_on = Activity(), threading.Event()

    def tick() -> None:
        activity.doing("generating", "round 3")
        activity.note(version=2)
        going_on.wait(10)
        daemon.stop()

    daemon = Daemon("worker", tick, 0.05, tmp_path / "health.json", activity=activity)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    give_up = time.monotonic() + 10
    told = {}
    while told.get("version") != 2 and time.monotonic() < give_up:
        if (tmp_path / "health.json").exists():
            told = read_health(tmp_path, "worker")["activity"]
    going_on.set()
    thread.join()
    assert (told["doing"], told["why"], told["version"]) == ("generating", "round 3", 2)


def test_a_state_folder_without_the_daemon_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no worker has run with the state folder"):
        read_health(tmp_path, "worker")
    (tmp_path / "health.json").write_text("{")
    with pytest.raises(Unavailable, match="is not a health file"):
        read_health(tmp_path, "worker")
    (tmp_path / "health.json").write_text('{"daemon": "validator"}')
    with pytest.raises(Misconfigured, match="not the state folder of a worker"):
        read_health(tmp_path, "worker")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (4.81, "4.8 s"),
        (59.7, "59 s"),
        (61, "1 min 1 s"),
        (7200, "2 h"),
        (7260, "2 h 1 min"),
        (180000, "2 d 2 h"),
    ],
)
def test_durations_have_their_two_largest_units(seconds: float, words: str) -> None:
    assert spell(seconds) == words
