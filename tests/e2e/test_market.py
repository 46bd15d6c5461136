"""The market as its users see it. One file, so that one local network runs at a time: two would starve each other."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.chaos.__main__ import bear_all
from tests.chaos.fault import FAULTS
from tests.e2e.conftest import ROOT, Network, assize, children_of
from tests.e2e.walks import Terminal, blocks, commands, newcomer, terminal

pytestmark = pytest.mark.e2e

SHORT = (3, 4, 14, 18, 20)
"""Those that are over in seconds; `make chaos` strikes with all."""


def test_a_short_run_slashes_the_cheat_trains_on_nothing_of_it_and_passes_its_own_audit(
    small_model: Path, tmp_path: Path
) -> None:
    root = tmp_path / "net"
    done = assize("localnet", "run", "--steps", "3", "--root", str(root), "--model", str(small_model))
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["steps"] == 3
    assert outcome["audit"] == "ok"
    assert int(outcome["cheat_slashed_wei"]) > 0
    assert outcome["cheat_rollouts_trained"] == 0
    assert outcome["cheat_rounds_before_caught"] == 0
    assert int(outcome["honest_slashed_wei"]) == 0
    assert 0 <= outcome["honest_rollouts_void"] <= outcome["rollouts_void"]
    assert outcome["rollouts_trained"] <= outcome["rollouts_accepted"]
    assert all(int(outcome["credits"][name]) > 0 for name in ("worker-1", "worker-2"))
    assert sum(int(earned) > 0 for name, earned in outcome["credits"].items() if name.startswith("validator")) >= 3
    report = json.loads((root / "report" / "report.json").read_text())
    assert report["watched"]["faults_found"] == report["watched"]["faults_planted"] == 1
    assert report["watched"]["bundles_in_doubt"] == 0
    assert (root / "report" / "reward.png").stat().st_size > 10_000
    page = (root / "report" / "run.html").read_text()
    assert "Line chart: Reward by version" in page
    assert page.count('<pre class="said">') == 4, "a prompt and a completion, then and now"
    commands = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    left = [command for command in commands if str(root) in command]
    assert left == []


@pytest.mark.long
def test_what_is_killed_and_started_again_goes_on_and_the_audit_holds(
    auditor: Path, network: Network, tmp_path: Path
) -> None:
    _a_second_network_in_the_same_folder_is_refused(network)
    folder, walk = network.root.parent, blocks("worker/README.md")
    with terminal(folder, "provider", newcomer(folder)) as provider:
        provider.types(walk[1])
        provider.waits_for('"event": "started"', 180)  # the doctor asks the coordinator, which is killed next
        _what_is_killed_goes_on(network)
        _a_provider_earns_and_is_told_why(provider, walk[2], network)
    _an_auditor_walks_as_its_readme_says(auditor, network)
    _an_auditor_computes_the_rewards_of_a_version_again(auditor, network)
    with network.at_rest():
        _an_auditor_walks_from_an_address_file_to_a_checked_export(auditor, network, tmp_path)
        _audit_passes_then_names_a_flipped_balance(auditor, network, tmp_path)
    _ctrl_c_leaves_nothing(network)


def _what_is_killed_goes_on(network: Network) -> None:
    network.wait_for("the first step", lambda: network.version() >= 1)
    killed = ("coordinator", "coordinator-driver", "worker-1", "validator-2")
    for name in killed:
        os.kill(network.pid(name), signal.SIGKILL)
    before = network.version()
    for name in killed:
        again = assize("localnet", "start", name, "--root", str(network.root))
        assert again.returncode == 0, again.stderr
    network.wait_for("a step after the kills", lambda: network.version() > before)


def _a_provider_earns_and_is_told_why(provider: Terminal, look: str, network: Network) -> None:
    """The walk of worker/README.md: its worker has begun in one terminal; what it earned is told in another."""
    provider.waits_for('"event": "round_ended"', 180)
    folder = network.root.parent
    with terminal(folder, "provider-3", newcomer(folder)) as third:
        shown = third.finishes(look)
        assert "submits, signed with its key" in shown
        assert "ASZ" in shown
        told = third.finishes("assize credits show --keystore alice --json && assize ledger why alice --json")
    credits, why = (json.loads(line) for line in told.splitlines()[:2])
    assert int(credits[0]["credits_wei"]) > 0
    assert any("earns" in line["says"] for line in why["lines"])
    assert max(len(line) for line in shown.splitlines()) <= 180
    assert "Traceback" not in provider.shown() + shown


def _an_auditor_walks_as_its_readme_says(auditor: Path, network: Network) -> None:
    """The last command of the auditor's walk; the fixture has typed the first two."""
    folder = network.root.parent
    audit = commands(blocks("ledger/README.md")[1])[-1].replace("auditor/bin/assize", str(auditor))
    with terminal(folder, "auditor", newcomer(folder, PYTHONPATH="")) as auditing:
        assert "audit ok" in auditing.finishes(audit)


def _an_auditor_computes_the_rewards_of_a_version_again(auditor: Path, network: Network) -> None:
    """Those of the newest version, whose files are served; without the trainer's packages it is told what it lacks."""
    place = ("--rpc", network.url("chain"), "--addresses", str(network.root / "addresses.json"), "--json")
    for _ in range(3):  # the market goes on: on a slow machine the files of a version may be gone by then
        words = ("ledger", "rewards", "1", str(network.version()), *place)
        done = assize(*words)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["differing"] == 0
    assert told["rollouts"] > 0
    lacking = subprocess.run([auditor, *words], capture_output=True, text=True, check=False, cwd="/")
    assert lacking.returncode == 2
    assert "is not installed: pip install 'assize[trainer]'" in lacking.stderr


def _a_second_network_in_the_same_folder_is_refused(network: Network) -> None:
    second = assize("localnet", "up", "--root", str(network.root))
    assert second.returncode == 2
    assert "is running in" in second.stderr
    assert "Traceback" not in second.stderr


def _an_auditor_walks_from_an_address_file_to_a_checked_export(auditor: Path, network: Network, tmp_path: Path) -> None:
    """The walk that README tells of, in an environment that has the ledger and nothing else."""
    place = ("--rpc", network.url("chain"), "--addresses", str(network.root / "addresses.json"))
    stored = (*place, "--db", str(tmp_path / "walk.db"))

    def ask(verb: str, *words: str) -> str:
        done = subprocess.run([auditor, "ledger", verb, *words], capture_output=True, text=True, check=False, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert json.loads(ask("audit", *stored, "--json"))["audit"] == "ok"
    settled = next(one for one in json.loads(ask("rounds", *stored, "--json")) if int(one["consumed"], 16))
    job = (int(settled["consumed"], 16) & -int(settled["consumed"], 16)).bit_length() - 1
    why = ask("why", f"{settled['round']}/{job}", *stored, "--json")
    steps = ("is its beacon", "submits, signed with its key", "commits to a vote", "the majority's verdict", "earns")
    assert [words for words in steps if words not in why] == []
    slash = json.loads(ask("slashes", *stored, "--json"))[0]
    assert "of its bond for fraud" in ask("why", f"{slash['block_number']}:{slash['log_index']}", *stored, "--json")
    newest = json.loads(ask("checkpoints", *stored, "--json"))[-1]
    line = json.loads(ask("lineage", str(newest["run"]), str(newest["version"]), *stored, "--json"))
    assert sum(one["jobs"] for one in line["ancestors"]) > 0
    ask("export", "--out", str(tmp_path / "books"), *stored)
    checked = json.loads(ask("verify-export", str(tmp_path / "books"), "--json"))
    replayed = json.loads(ask("replay", "--against", str(tmp_path / "books"), *place, "--json"))
    assert replayed["state_hash"] == checked["state_hash"]


def _audit_passes_then_names_a_flipped_balance(auditor: Path, network: Network, tmp_path: Path) -> None:
    database = tmp_path / "auditor.db"
    words = ("--rpc", network.url("chain"), "--addresses", str(network.root / "addresses.json"), "--db", str(database))
    passed = subprocess.run([auditor, "ledger", "audit", *words], capture_output=True, text=True, check=False, cwd="/")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    with sqlite3.connect(database) as connection:
        owner, balance = connection.execute("SELECT owner, balance FROM credit WHERE worked != '0'").fetchone()
        connection.execute("UPDATE credit SET balance = ? WHERE owner = ?", (str(int(balance) + 1), owner))
    failed = assize("ledger", "audit", *words)
    assert failed.returncode == 1
    assert owner in failed.stdout + failed.stderr
    assert "balance" in failed.stdout + failed.stderr


def _ctrl_c_leaves_nothing(network: Network) -> None:
    children = children_of(network.supervisor.pid)
    assert len(children) >= 10
    network.supervisor.send_signal(signal.SIGINT)
    network.supervisor.wait(60)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


@pytest.mark.long
def test_a_supervisor_killed_outright_takes_its_children_along(network: Network) -> None:
    children = children_of(network.supervisor.pid)
    network.supervisor.kill()
    network.supervisor.wait(10)
    _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == []


def test_help_needs_less_than_the_parts_it_lists() -> None:
    heavy = "any(name in sys.modules for name in ('torch', 'web3'))"
    script = f"import sys, assize; assize.front_door(['--help']); print({heavy})"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert shown.stdout.strip() == "False"


@pytest.mark.long
def test_the_market_bears_kills_between_writes_a_reorganisation_a_flush_and_a_lock(
    small_model: Path, tmp_path: Path
) -> None:
    borne = list(bear_all(tmp_path / "net", small_model, [FAULTS[number] for number in SHORT]))
    assert {one.fault.number: one.broken for one in borne} == dict.fromkeys(SHORT, ())


def test_faults_are_numbered_without_a_gap_and_make_help_says_how_many_there_are() -> None:
    assert sorted(FAULTS) == list(range(1, len(FAULTS) + 1))
    assert f"{len(FAULTS)} faults on the running local network" in (ROOT / "Makefile").read_text()


@pytest.mark.long
def test_an_honest_worker_that_was_condemned_appeals_and_is_restored_and_the_faulty_validator_pays(
    small_model: Path, tmp_path: Path
) -> None:
    words = ("localnet", "run", "--faulty-committee", "--root", str(tmp_path / "net"), "--model", str(small_model))
    done = assize(*words, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["overturned"] == outcome["appeals"] > 0
    assert outcome["audit"] == "ok"
    assert int(outcome["honest_slashed_wei"]) == 0
    assert int(outcome["faulty_slashed_wei"]) > 0
    assert int(outcome["paid_wei"]) > 0
    assert int(outcome["awarded_wei"]) > 0
