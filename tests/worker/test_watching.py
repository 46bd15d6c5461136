"""``assize worker watch``: the view from any state, and the command beside a real worker."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace

import pytest

from protocol.chain.events import VoteRevealed
from protocol.node.activity import HEALTH_FILE
from protocol.node.daemon import Daemon
from protocol.node.progress import progress_line
from protocol.node.watching import lines_of
from protocol.wire.evidence import Finding
from protocol.wire.reasons import Reason
from tests.worker.farm import Farm, wait_for
from tests.worker.typed import typed
from worker.earnings import DaysWork, RefusedJob
from worker.refusals import main_reason, sentence_of
from worker.watching import WorkerLook, worker_view

NOW = 1_800_000_100
TOKEN = 10**18
ACTIVITY = {
    "doing": "generating",
    "why": "round 97, 6 jobs",
    "since": NOW - 3,
    "started": NOW - 7200,
    "seconds": {"generating": 3600.0, "waiting": 3600.0},
    "node": 7,
    "run": 1,
    "version": 12,
    "tokens_per_second": 1234.56,
    "rounds": [96, 97],
}
LOOK = WorkerLook(
    health={"daemon": "worker", "pid": 4, "at": NOW, "problem": "", "activity": ACTIVITY},
    alive=True,
    day=DaysWork(24_700_000_000_000_000_000, {"accepted": 24, "fraud": 0, "void": 1}),
    bond=16 * TOKEN,
    needed=16 * TOKEN,
    held=12 * TOKEN,
    capacity=8,
    in_flight=6,
    listable=True,
    joined=True,
    credits=100 * TOKEN,
    refusals=("round 90, job 3 void: a token differs from the seeded choice by more than the run tolerates",),
)
REFUSED = RefusedJob(90, 3, "void", 40, NOW)


def test_a_busy_worker_at_80_columns() -> None:
    assert lines_of(worker_view(LOOK, NOW), 80) == [
        "worker: node 7, run 1",
        "now              generating: round 97, 6 jobs, 3 s",
        "tokens a second  1,234.6 in its last jobs",
        "at work          50 % of 2 h",
        "version loaded   12",
        "in flight        6 of 8 jobs, rounds 96, 97",
        "jobs today       accepted 24  void 1",
        "earned today     24.70 ASZ",
        "owner's credits  100.00 ASZ",
        "bond             16 ASZ, 16 ASZ needed",
        "bond margin      4 ASZ beyond jobs in flight",
        "",
        "round 90, job 3 void: a token differs from the seeded choice by more than the",
        "run tolerates",
    ]


def test_at_140_columns_it_takes_half_the_lines() -> None:
    lines = lines_of(worker_view(LOOK, NOW), 140)
    assert len(lines) == 8
    assert all(len(line) <= 140 for line in lines)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alive": False}, "not running; last sign of life at 2027-01-15"),
        ({"listable": False, "bond": 15 * TOKEN}, "not listed for rounds: its bond is 15 ASZ of 16 ASZ"),
        ({"listable": False}, "not listed for rounds: it is not active"),
        ({"joined": False}, "not joined at the run's rules in effect: assize run join"),
        ({"held": 18 * TOKEN}, "bond margin -2 ASZ"),
        ({"day": DaysWork()}, "jobs today none yet"),
        ({"health": LOOK.health | {"problem": "no RPC answers", "problem_at": NOW}}, "now retrying: no RPC answers"),
        ({"health": LOOK.health | {"problem": "no RPC answered", "problem_at": 0}}, "now generating"),
        ({"health": LOOK.health | {"activity": {}}}, "version loaded none yet"),
        (
            {
                "health": LOOK.health
                | {"activity": ACTIVITY | {"fetching": progress_line("version 13", 10**6, 4 * 10**6, 2.0)}}
            },
            "fetching version 13: 25 %, 1.0 MB of 4.0 MB after 2 s, 500.0 kB/s, 6 s left",
        ),
    ],
)
def test_every_state_has_its_words(change: dict[str, object], words: str) -> None:
    shown = " ".join(" ".join(lines_of(worker_view(replace(LOOK, **change), NOW), 80)).split())  # type: ignore[arg-type]
    assert words in shown


def test_a_pipes_line_does_not_change_while_nothing_happens() -> None:
    assert worker_view(LOOK, NOW).line == worker_view(LOOK, NOW + 5).line
    assert worker_view(LOOK, NOW).line == (
        "generating: round 97, 6 jobs  in flight 6  today accepted 24  void 1  24.70 ASZ  bond 16 ASZ"
    )


def revealed(juror: int, reason: Reason | None) -> VoteRevealed:
    """A vote on jobs 2 and 3, which refuses job 3 for ``reason``."""
    accept = 0b1100 if reason is None else 0b0100
    return VoteRevealed(90, juror, 0, accept, 0, b"" if reason is None else bytes([reason]), bytes([juror]) * 32, b"")


def test_the_reason_that_most_jurors_gave_is_told_with_its_number_and_limit() -> None:
    votes = [revealed(1, Reason.LOGPROBS), revealed(2, Reason.SAMPLING_VOID), revealed(3, Reason.SAMPLING_VOID)]
    reason, roots = main_reason([*votes, revealed(4, None)], 3, 0b1100)
    assert (reason, roots) == (Reason.SAMPLING_VOID, (b"\2" * 32, b"\3" * 32))
    finding = Finding(Reason.SAMPLING_VOID, "a token is not the seeded choice", 5, 0.31234, 0.125)
    assert sentence_of(REFUSED, reason, finding) == (
        "round 90, job 3 void: a token differs from the seeded choice by more than the run tolerates "
        "(a token is not the seeded choice in rollout 5: measured 0.3123, limit 0.125)"
    )
    assert main_reason([revealed(4, None)], 3, 0b1100) == (None, ())
    assert sentence_of(REFUSED, None, None) == "round 90, job 3 void: no juror gave a reason"


def test_a_real_worker_is_watched_from_its_state_folder_and_the_chain(farm: Farm) -> None:
    worker = farm.worker()
    state = worker.settings.state_dir
    daemon = Daemon("worker", worker.tick, 0.05, state / HEALTH_FILE, activity=worker.activity)
    thread = threading.Thread(target=daemon.run, daemon=True)
    thread.start()
    farm.open_round(worker)
    wait_for(lambda: '"tokens_per_second"' in (state / HEALTH_FILE).read_text())
    settings = {name.upper(): str(getattr(worker.settings, name)) for name in ("coordinator_url", "run", "state_dir")}
    env = {f"ASSIZE_WORKER_{name}": value for name, value in settings.items()} | {
        "ASSIZE_WORKER_RPC_URL": farm.swarm.anvil.url,
        "ASSIZE_WORKER_ADDRESSES": str(farm.directory / "addresses.json"),
        "ASSIZE_WORKER_KEYSTORE": "worker",
    }
    shown = typed(farm, "worker", "watch", "--once", "--json", **env).out
    daemon.stop()
    thread.join(10)
    # The worker of this process logs to the same place while the command runs.
    (told,) = (json.loads(line) for line in shown.splitlines() if line.startswith("{"))
    assert (told["node"], told["run"], told["alive"]) == (farm.party.node, farm.swarm.run, True)
    assert told["activity"]["version"] == 0
    assert told["activity"]["tokens_per_second"] > 0
    assert told["in_flight"] == 2
    assert int(told["margin_wei"]) == int(told["bond_wei"]) - 2 * TOKEN
    shown = typed(farm, "worker", "watch", "--once", **env)
    assert f"worker: node {farm.party.node}, run {farm.swarm.run}" in shown.out
    assert "\x1b" not in shown.out
    missing = typed(farm, "worker", "watch", "--once", **(env | {"ASSIZE_WORKER_STATE_DIR": str(farm.directory / "x")}))
    assert (missing.code, missing.err.count("\n")) == (3, 1)
    assert os.getpid() == json.loads((state / HEALTH_FILE).read_text())["pid"]
