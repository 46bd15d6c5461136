"""What an auditor types: tables, JSON, exit codes, and one sentence for each thing that can be wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from deploy.localnet.processes import free_port
from ledger.commands.app import app
from protocol.chain.deployment import FINALITY_DEPTH
from protocol.chain.reading.client import Chain
from tests.conftest import ROOT, Anvil, deploy_on
from tests.ledger.conftest import shared_story as story
from tests.ledger.scenario import FEE, MAX_UNITS, PRICE, Story

__all__ = ["story"]

Ledger = Callable[..., Result]
WORKED = (MAX_UNITS - 5 + MAX_UNITS) * PRICE


@pytest.fixture
def command(chain: Chain, addresses: Path, tmp_path: Path) -> list[str]:
    """The front door's ledger, on the test's chain and a database of its own; the verb is to be put in third place."""
    where = ["--rpc", chain.rpc.url, "--addresses", str(addresses), "--db", str(tmp_path / "auditor.sqlite")]
    return [sys.executable, str(ROOT / "assize.py"), "ledger", *where]


@pytest.fixture
def ledger(command: list[str]) -> Ledger:
    """Runs ``assize ledger VERB`` in this process; later options win over earlier ones."""

    def run(verb: str, *more: str) -> Result:
        return CliRunner().invoke(app, [verb, *command[3:], *more])

    return run


def test_an_auditor_sees_credits_rounds_and_slashes_and_the_audit_passes(story: Story, ledger: Ledger) -> None:
    credits = {row["owner"]: row for row in json.loads(ledger("credits", "--json").stdout)}
    honest = credits[story.honest.owner.address]
    assert (honest["worked"], honest["redeemed"]) == (str(WORKED), str(MAX_UNITS * PRICE))
    assert honest["balance"] == str(WORKED - MAX_UNITS * PRICE)
    judged = sum(int(row["judged"]) for row in credits.values())
    assert judged == 2 * FEE
    slashes = json.loads(ledger("slashes", "--json").stdout)
    assert {(row["node"], row["cause"]) for row in slashes} >= {
        (story.cheat.node, "fraud"),
        (story.silent, "absence"),
    }
    assert [row["state"] for row in json.loads(ledger("rounds", "--json").stdout)] == ["settled", "void", "void"]
    assert [row["version"] for row in json.loads(ledger("checkpoints", "--json").stdout)] == [0, 1, 3]
    told = json.loads(ledger("rounds", str(story.rounds[0])).stdout)
    assert [job["verdict"] for job in told["jobs"]] == ["accepted", "accepted", "fraud", "fraud"]
    assert "in service" in ledger("nodes").stdout
    for listed in ("validators", "slashes", "rounds"):
        assert f"{listed.capitalize()}, amounts in ASZ" in ledger(listed).stdout
    audit = ledger("audit", "--json")
    assert audit.exit_code == 0, audit.stdout + audit.stderr
    assert json.loads(audit.stdout)["audit"] == "ok"


def test_a_flipped_balance_is_named_and_the_exit_code_is_one(
    story: Story, ledger: Ledger, command: list[str], tmp_path: Path
) -> None:
    assert ledger("audit").exit_code == 0
    owner = story.honest.owner.address
    with sqlite3.connect(tmp_path / "auditor.sqlite") as connection:
        connection.execute("UPDATE credit SET balance = '123' WHERE owner = ?", (owner,))
    connection.close()
    audit = subprocess.run(
        [*command[:3], "audit", *command[3:]], capture_output=True, text=True, timeout=60, check=False
    )
    assert audit.returncode == 1
    said = " ".join(audit.stdout.split())
    assert f"credit {owner}: balance is 123, the events say {WORKED - MAX_UNITS * PRICE}" in said


def test_an_unknown_round_is_one_sentence(ledger: Ledger) -> None:
    answer = ledger("rounds", "77")
    assert (answer.exit_code, answer.stderr) == (1, "assize: there is no round 77\n")


def test_each_wrong_input_is_one_sentence(chain: Chain, addresses: Path, ledger: Ledger, tmp_path: Path) -> None:
    other_id, other_place = tmp_path / "id.json", tmp_path / "place.json"
    replace(chain.deployment, chain_id=1).save(other_id)
    replace(chain.deployment, rounds="0x00000000000000000000000000000000000000AA").save(other_place)
    wrong = [
        (("--rpc", f"http://127.0.0.1:{free_port()}"), 3, "RPC"),
        (("--addresses", str(tmp_path / "missing.json")), 2, "cannot read the address file"),
        (("--addresses", str(other_id)), 2, "wrong chain"),
        (("--addresses", str(other_place)), 2, "another deployment"),
        (("--db", "sqlite://"), 2, "invalid database 'sqlite://': expected a file"),
        (("--db", "mystery://x"), 2, "cannot open the ledger's database"),
        (("--db", "postgresql://h:abc/x"), 2, "cannot open the ledger's database"),
        (("--db", f"postgresql://me:secret@127.0.0.1:{free_port()}/x"), 2, "postgresql://me:***@127.0.0.1"),
        (("--db", "~nobody-of-this-name/x"), 2, "cannot open the ledger's database"),
    ]
    for options, code, words in wrong:
        answer = ledger("audit", *options)
        assert answer.exit_code == code, answer
        assert answer.stderr.count("\n") == 1, answer.stderr
        assert words in answer.stderr


def test_a_state_folder_of_nobody_is_one_sentence(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSIZE_LEDGER_STATE_DIR", "~nobody-of-this-name/ledger")
    answer = ledger("audit", "--db", "")
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1), answer
    assert "give --db" in answer.stderr


@pytest.mark.parametrize("verb", ["rounds", "serve", "lineage", "why", "replay"])
def test_a_number_that_nothing_can_have_is_refused(ledger: Ledger, command: list[str], verb: str) -> None:
    for number in ("9223372036854775808", "-9223372036854775809", "9" * 5_000):
        words = {
            "rounds": [["rounds", *command[3:], "--", number]],
            "serve": [["serve", *command[3:], "--port", number]],
            "lineage": [["lineage", *command[3:], "--", number, "1"], ["lineage", *command[3:], "--", "1", number]],
            "why": [["why", *command[3:], "--", f"{number}{kind}0"] for kind in "/:"]
            + [["why", *command[3:], "--", f"1{kind}{number}"] for kind in "/:"],
            "replay": [["replay", *command[3:-2], "--block", number]],
        }[verb]
        for line in words:
            answer = CliRunner().invoke(app, line)
            assert answer.exit_code == 2, (line, answer)
            assert answer.stdout == ""
    for largest in (
        ["rounds", "9223372036854775807"],
        ["why", f"{'9' * 18}/{'9' * 9}"],
        ["why", f"{'9' * 18}:{'9' * 9}"],
    ):
        answer = ledger(*largest)
        assert (answer.exit_code, answer.stderr.count("\n")) == (1, 1), answer


def test_what_is_quoted_of_others_is_shown_as_it_is_and_does_nothing_to_the_terminal(
    story: Story, ledger: Ledger, tmp_path: Path
) -> None:
    assert ledger("sync").exit_code == 0
    wrong = "[/x] :warning: \x1b[2J"
    with closing(sqlite3.connect(tmp_path / "auditor.sqlite")) as connection, connection:
        (block, log) = connection.execute("SELECT block_number, log_index FROM credit_entry").fetchone()
        for table, column in (("submission", "uri"), ("credit_entry", "kind"), ("slash", "cause")):
            connection.execute(f"UPDATE {table} SET {column} = ?", (wrong,))
    for words in (("audit",), ("why", f"{block}:{log}"), ("slashes",)):
        answer = ledger(*words, "--no-sync")
        assert isinstance(answer.exception, SystemExit | None), answer
        assert "[/x] :warning: \\x1b[2J" in " ".join(answer.stdout.split()), answer.stdout
        assert "\x1b" not in answer.stdout


def test_an_address_file_of_another_deployment_does_not_open_this_database(
    chain: Chain, anvil: Anvil, ledger: Ledger, tmp_path: Path
) -> None:
    assert ledger("sync").exit_code == 0
    deploy_on(anvil).save(tmp_path / "second.json")
    answer = ledger("audit", "--addresses", str(tmp_path / "second.json"))
    assert answer.exit_code == 2
    assert "holds the ledger of another deployment" in answer.stderr


def test_a_replay_as_of_a_block_before_the_deployment_is_one_sentence(
    anvil: Anvil, command: list[str], tmp_path: Path
) -> None:
    anvil.rpc.call("anvil_mine", hex(FINALITY_DEPTH + 1))
    second = deploy_on(anvil)
    second.save(tmp_path / "second.json")
    first = second.start_block
    replay = ["replay", *command[3:-2], "--addresses", str(tmp_path / "second.json"), "--block"]
    answer = CliRunner().invoke(app, [*replay, str(first - 1)])
    sentence = f"block {first - 1} is before the deployment's first block, {first}; ask for that or a later one"
    assert (answer.exit_code, answer.stderr) == (2, f"assize: {sentence}\n")
    assert CliRunner().invoke(app, [*replay, str(first)]).exit_code == 0


def test_serving_follows_the_chain_until_it_is_told_to_stop(command: list[str], story: Story) -> None:
    served = subprocess.Popen([*command[:3], "serve", *command[3:], "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        url = re.search(r"http://\S+", served.stdout.readline())
        assert url is not None
        with httpx.Client(base_url=url[0], trust_env=False, timeout=30) as http:
            while http.get("/health").json()["behind"] != 0:
                pass
            assert http.get("/rounds").json()["items"][0]["state"] == "settled"
            assert http.get("/audit").json()["audit"] == "ok"
            taken = ["--port", url[0].rsplit(":", 1)[1]]
            second = subprocess.run(
                [*command[:3], "serve", *command[3:], *taken], capture_output=True, text=True, timeout=30, check=False
            )
            assert (second.returncode, second.stderr.count("\n")) == (2, 1)
            assert "cannot listen" in second.stderr
    finally:
        served.send_signal(signal.SIGTERM)
        assert served.wait(20) in (0, -signal.SIGTERM)
        served.stdout.close()


def test_the_ledger_imports_nothing_of_torch_parquet_celery_or_redis() -> None:
    code = (
        "import sys, ledger.commands.app, ledger.api.app, ledger.store.follower, uvicorn\n"
        "import json; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    listed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), check=True
    )
    heavy = {"torch", "transformers", "pyarrow", "celery", "redis", "kombu", "safetensors", "psutil", "matplotlib"}
    services = {"coordinator", "worker", "validator", "trainer"}
    assert not (heavy | services) & set(json.loads(listed.stdout))
