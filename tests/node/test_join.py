"""``assize join`` on a real chain: one node and one bond, whenever it is ended and typed again."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.localnet.processes import free_port
from protocol.chain.reading.client import Chain
from protocol.chain.structs import Role, RunTerms
from protocol.chain.writing import actions
from protocol.chain.writing.fees import Fees
from protocol.chain.writing.sender import Sender
from protocol.errors import Unavailable
from protocol.node.commands.joining.launching import launch_environment
from protocol.node.commands.joining.steps import Joiner, market_of, reader_from, settled_sender
from protocol.node.membership import JoinStep, Membership, remaining_steps
from protocol.node.profile import Profile
from protocol.node.profile_edit import set_network
from protocol.node.wallet import Keystores, Wallet
from tests.conftest import ROOT, TOKEN, Anvil

RULES = b"\x07" * 32
QUIET_SECONDS = 0.2
"""Silence after which a command at a terminal waits for an answer: a line may arrive in parts."""


@pytest.fixture
def run(chain: Chain, make_wallet: Callable[[str], Wallet], tmp_path: Path) -> int:
    """An open run."""
    return opened_run(chain, make_wallet("requester"), tmp_path, "open")


def opened_run(chain: Chain, requester: Wallet, tmp_path: Path, intent: str) -> int:
    terms = RunTerms(
        requester.address, requester.address, RULES, 10**9, TOKEN // 10, 10**9, 3, 0, 600, 600, 600, 600, 0
    )
    with closing(Sender(chain, requester, tmp_path / f"{intent}.sqlite")) as sender:
        return actions.open_run(sender, terms, b"\x01" * 32, "http://127.0.0.1:1").carry_out(intent).run


@pytest.fixture
def place(chain: Chain, anvil: Anvil, run: int, tmp_path: Path) -> Path:
    """A folder with a profile that names the network, and a password file."""
    chain.deployment.save(tmp_path / "addresses.json")
    set_network(tmp_path / "assize.toml", "here", anvil.url, tmp_path / "addresses.json")
    (tmp_path / "password").write_text("pw\n")
    return tmp_path


def command(place: Path, *words: str) -> tuple[list[str], dict[str, Any]]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "COLUMNS": "100"}
    return [sys.executable, str(ROOT / "assize.py"), *words], {"cwd": place, "env": environment}


def typed(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line, where = command(place, *words)
    return subprocess.run(line, **where, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


WORKER = ("join", "worker", "--wallet", "alice", "--password-file", "password", "--yes", "--no-start")


def nodes_of(chain: Chain) -> list[tuple[Role, int]]:
    reader = chain.latest()
    return [(node.role, node.bond) for node in reader.nodes(range(1, reader.node_count() + 1))]


def test_killed_at_any_moment_and_typed_again_it_ends_with_one_node_and_one_bond(
    place: Path, chain: Chain, run: int
) -> None:
    line, where = command(place, *WORKER)
    for seconds in (1.0, 1.8, 2.6):
        process = subprocess.Popen(line, **where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = typed(place, *WORKER)
    assert done.returncode == 0, done.stderr
    assert nodes_of(chain) == [(Role.WORKER, 8 * TOKEN)]
    assert chain.latest().joined_at(run, 1) == RULES
    again = typed(place, *WORKER, "--json")
    assert again.returncode == 0, again.stderr
    assert '"node": 1' in again.stdout
    assert '"steps": []' in again.stdout
    assert nodes_of(chain) == [(Role.WORKER, 8 * TOKEN)]
    profile = Profile.read(place / "assize.toml")
    table = profile.table("worker")
    assert (table["network"], table["run"], table["keystore"]) == ("here", run, "alice-worker")
    assert profile.wallet()["keystore"] == "alice"
    other = typed(place, *WORKER, "--key", "another")
    assert other.returncode == 2
    assert "has a worker with keystore alice-worker, not another: name another profile" in other.stderr


def test_typed_again_with_other_answers_it_pays_for_the_node_that_is_there_and_no_more(
    place: Path, chain: Chain, run: int
) -> None:
    first = typed(place, *WORKER, "--capacity", "4")
    assert first.returncode == 0, first.stderr
    assert nodes_of(chain) == [(Role.WORKER, 4 * TOKEN)]
    again = typed(place, *WORKER)
    assert again.returncode == 0, again.stderr
    assert "still to pay" in again.stdout
    assert nodes_of(chain) == [(Role.WORKER, 4 * TOKEN)]
    more = typed(place, *WORKER, "--capacity", "6")
    assert (more.returncode, "node 1 was registered for 4 jobs in flight, which stays" in more.stderr) == (2, True)
    assert market_of(chain, run) == (4, 0)
    assert market_of(chain, run, own=1) == (0, 0)


VALIDATOR = ("join", "validator", "--wallet", "vera", "--password-file", "password", "--yes", "--no-start")


def test_a_foundry_keystore_that_states_no_address_resumes(place: Path, chain: Chain, run: int) -> None:
    folder = place / "home" / ".foundry" / "keystores"
    Keystores(folder).create("fred", "pw", scrypt_n=2**4)
    stored = json.loads((folder / "fred.json").read_text())
    (folder / "fred.json").unlink()
    (folder / "fred").write_text(json.dumps({"crypto": stored["crypto"], "id": stored["id"], "version": 3}))
    words = ("join", "worker", "--wallet", "fred", "--password-file", "password", "--yes", "--no-start")
    for _ in range(2):
        done = typed(place, *words)
        assert done.returncode == 0, done.stderr
    assert nodes_of(chain) == [(Role.WORKER, 8 * TOKEN)]


def test_keystores_given_as_files_join_and_are_found_from_any_folder(place: Path, chain: Chain, run: int) -> None:
    for name in ("owner", "box"):
        Keystores(place / "keys").create(name, "pw", scrypt_n=2**4)
    words = ("join", "worker", "--password-file", "password", "--yes", "--no-start", "--wallet", "keys/owner.json")
    nameless = typed(place, *words)
    assert (nameless.returncode, "is a file, which gives no name: name the session key with" in nameless.stderr) == (
        2,
        True,
    )
    for _ in range(2):
        done = typed(place, *words, "--key", "./keys/box.json")
        assert done.returncode == 0, done.stderr
    assert nodes_of(chain) == [(Role.WORKER, 8 * TOKEN)]
    written = Profile.read(place / "assize.toml")
    assert written.content["wallet"]["keystore"] == str(place / "keys" / "owner.json")
    assert written.table("worker")["keystore"] == str(place / "keys" / "box.json")
    shown = typed(place, "config", "show", "worker", "--json")
    assert (shown.returncode, "keys/box.json" in shown.stdout) == (0, True), shown.stderr


def test_typed_again_plainly_it_leaves_what_the_profile_has(place: Path, chain: Chain, run: int) -> None:
    typed_first = ("--device", "cuda", "--state-dir", "elsewhere", "--key", "box")
    first = typed(place, *WORKER, *typed_first)
    assert first.returncode == 0, first.stderr
    before = Profile.read(place / "assize.toml").table("worker")
    assert (before["device"], before["state_dir"]) == ("cuda", place / "elsewhere")
    again = typed(place, "join", "worker", "--yes", "--no-start")
    assert again.returncode == 0, again.stderr
    assert Profile.read(place / "assize.toml").table("worker") == before
    assert nodes_of(chain) == [(Role.WORKER, 8 * TOKEN)]


def fill_house(chain: Chain) -> None:
    """Writes node 1 into all 256 slots of the registry's storage, as if each were taken."""
    registry, reader = chain.deployment.registry, chain.latest()

    def write(first: int, value: str, words: int) -> None:
        for word in range(first, first + words):
            chain.rpc.call("anvil_setStorageAt", registry, f"{word:#066x}", value)

    ones = [
        word for word in range(64) if int(chain.rpc.call("eth_getStorageAt", registry, hex(word), "latest"), 16) == 1
    ]
    fills: tuple[tuple[str, int, Callable[[], bool]], ...] = (
        ("0x" + "f" * 64, 1, lambda: reader.next_contest() is not None),
        ("0x" + "00000001" * 8, 32, lambda: reader.holder(255) == 1),
    )
    for value, words, is_full in fills:
        for word in ones:
            before = chain.rpc.call("evm_snapshot")
            write(word, value, words)
            if is_full():
                break
            chain.rpc.call("evm_revert", before)
        assert is_full()


def test_a_settled_validator_pays_nothing_when_the_slots_are_taken_later(place: Path, chain: Chain, run: int) -> None:
    first = typed(place, *VALIDATOR, "--margin", "2")
    assert first.returncode == 0, first.stderr
    fill_house(chain)
    assert chain.latest().next_contest() == (0, 15 * TOKEN)
    again = typed(place, *VALIDATOR, "--margin", "2")
    assert again.returncode == 0, again.stderr
    assert nodes_of(chain) == [(Role.VALIDATOR, 12 * TOKEN)]


def test_a_newcomer_to_a_full_house_waits_for_its_slot_and_pays_no_margin_yet(
    place: Path, chain: Chain, run: int
) -> None:
    first = typed(place, *VALIDATOR, "--margin", "2")
    assert first.returncode == 0, first.stderr
    fill_house(chain)
    (place / "other.toml").write_bytes((place / "assize.toml").read_bytes().split(b"[validator]")[0])
    newcomer = (*VALIDATOR, "--key", "newcomer")
    for _ in range(2):
        line, where = command(place, *newcomer)
        where["env"]["ASSIZE_PROFILE"] = "other.toml"
        done = subprocess.run(line, **where, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "node 2 waits for slot 0: its daemon takes it from" in done.stdout
    assert nodes_of(chain) == [(Role.VALIDATOR, 12 * TOKEN), (Role.VALIDATOR, 15 * TOKEN)]


def test_after_each_step_a_new_process_goes_on_with_the_next(
    chain: Chain, run: int, make_wallet: Callable[[str], Wallet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSIZE_STATE_DIR", str(tmp_path))
    owner, key = make_wallet("vera"), make_wallet("vera-validator")
    bond = chain.latest().required_bond(Role.VALIDATOR, 1)
    wanted, taken = Membership(run, 1, bond, 2 * TOKEN, TOKEN // 50), []
    while True:
        with settled_sender(chain, owner, Fees()) as sender:
            joiner = Joiner(chain, sender, key, Role.VALIDATOR, wanted)
            steps = remaining_steps(wanted, joiner.look())
            if not steps:
                break
            joiner.take(steps[0])
            taken.append(steps[0])
    assert len(set(taken)) == len(taken)
    assert nodes_of(chain) == [(Role.VALIDATOR, bond + 2 * TOKEN)]
    assert chain.latest().joined_at(run, 1) == RULES


def test_it_decides_on_no_head_older_than_the_owners_last_transaction(
    chain: Chain, run: int, make_wallet: Callable[[str], Wallet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSIZE_STATE_DIR", str(tmp_path))
    owner, key = make_wallet("vera"), make_wallet("vera-worker")
    with settled_sender(chain, owner, Fees()) as sender:
        joiner = Joiner(chain, sender, key, Role.WORKER, Membership(run, 1, TOKEN, 0, 0))
        with pytest.raises(Unavailable, match=r"shows no node of .*, which was registered"):
            joiner.node()
        joiner.take(JoinStep.TAKE_TOKENS)
        joiner.take(JoinStep.REGISTER)
        assert sender.newest_block() == chain.head().number
        assert joiner.node() == 1
    with pytest.raises(Unavailable, match=r"the RPC is at block \d+ and the last transaction in \d+: type this again"):
        reader_from(chain, chain.head().number + 1, seconds=0.0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("worker", "--yes"),
            "missing wallet of the owner: --yes asks nothing and there is no default: give --wallet NAME",
        ),
        (("worker",), "missing wallet of the owner: there is no terminal to ask at: give --wallet NAME"),
        (("worker", "--wallet", "a", "--yes"), "missing the password: --yes asks nothing: give --password-file FILE"),
        (
            ("worker", "--wallet", "a"),
            "missing most jobs in flight: there is no terminal to ask at: give --capacity, or take",
        ),
        (("worker", "--run", "9", "--yes"), "run 9 is unknown: expected one of 1"),
        (
            ("worker", "--network", "there", "--yes"),
            "unknown network 'there' in the profile assize.toml: expected one of",
        ),
        (("validator", "--wallet", "a", "--margin", "-1", "--yes"), "invalid amount '-1'"),
        (("worker", "--wallet", "a", "--json"), "--json shows no figures to agree to: add --yes"),
        (("--yes",), "missing role, worker or validator: --yes asks nothing"),
        (("worker", "--wallet", "../a", "--key", "b", "--password-file", "password", "--yes"), "no keystore file /"),
    ],
)
def test_what_is_missing_or_wrong_is_one_sentence_and_nothing_is_sent(
    place: Path, chain: Chain, words: tuple[str, ...], sentence: str
) -> None:
    done = typed(place, "join", *words)
    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert nodes_of(chain) == []


def test_what_it_starts_is_on_the_network_that_was_joined_whatever_variables_name() -> None:
    named = {"ASSIZE_NETWORK": "a", "ASSIZE_WORKER_RPC_URL": "http://a", "ASSIZE_WORKER_KEYSTORE": "x", "HOME": "/h"}
    kept = {"ASSIZE_WORKER_LOG_LEVEL": "debug", "ASSIZE_VALIDATOR_KEYSTORE": "v"}
    assert launch_environment("worker", "b", named | kept) == {"ASSIZE_NETWORK": "b", "HOME": "/h"} | kept


def test_without_a_network_it_says_how_to_add_one(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    done = typed(tmp_path, "join", "worker", "--yes")
    assert (done.returncode, "add one with: assize network add NAME" in done.stderr) == (2, True), done.stderr


def test_a_network_that_does_not_answer_is_not_kept(place: Path) -> None:
    (place / "assize.toml").unlink()
    shown = at_a_terminal(place, ["main", "addresses.json", f"http://127.0.0.1:{free_port()}"], "join", "worker")
    assert "no RPC answers at" in shown
    assert list(place.rglob("assize.toml")) == []


def test_at_a_terminal_it_asks_shows_the_figures_and_does_nothing_before_it_is_agreed_to(
    place: Path, chain: Chain
) -> None:
    answers = ["worker", "alice", "4", "transformers", "n"]
    shown = at_a_terminal(place, answers, "join")
    for words in ("wallet of the owner", "most jobs in flight", "bond", "4 ASZ", "up to 1 ASZ a job", "Go on?"):
        assert words in shown, shown
    assert "type the same command again" in shown
    assert nodes_of(chain) == []
    assert not (place / "home" / ".assize" / "keystores").exists()


def test_at_a_terminal_a_run_is_chosen_among_several_and_a_capacity_of_none_is_asked_for_again(
    place: Path, chain: Chain, make_wallet: Callable[[str], Wallet], tmp_path: Path
) -> None:
    opened_run(chain, make_wallet("another"), tmp_path, "another")
    shown = at_a_terminal(place, ["x", "7", "2", "alice", "0", "4", "transformers", "n"], "join", "worker")
    assert "run 7 is unknown: expected one of 1, 2" in shown
    assert "invalid capacity 0: expected 1 or more" in shown
    assert "join run 2 as a worker" in shown


def at_a_terminal(place: Path, answers: list[str], *words: str) -> str:
    """Types answers, each once the command has asked and waits; returns everything shown."""
    line, where = command(place, *words)
    own, theirs = pty.openpty()
    process = subprocess.Popen(line, **where, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown, deadline = "", time.monotonic() + 120
    try:
        while True:
            assert time.monotonic() < deadline, f"it waits:\n{shown}"
            if select.select([own], [], [], QUIET_SECONDS)[0]:
                shown += os.read(own, 4096).decode(errors="replace")
            elif answers and shown.rstrip(" ").endswith(":"):
                os.write(own, answers.pop(0).encode() + b"\n")
                shown += "\0"
    except OSError:  # the terminal is closed once the command has ended
        process.wait(20)
        return shown
    finally:
        process.kill()
        process.wait()
        os.close(own)
