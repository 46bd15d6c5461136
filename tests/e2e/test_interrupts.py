"""Ctrl-C and a killed RPC at every moment of a command: no traceback, and nothing about a transaction left unsaid.

Commands are processes of their own, behind a server that strikes at a request, so that the moments are exact.
"""

from __future__ import annotations

import os
import pty
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.chain.reading.client import Chain
from tests.chaos.between import Answer, Asked, Between, Forward
from tests.conftest import ROOT, TOKEN, Anvil
from tests.typing_in import Desk, Typed

WAIT_SECONDS = 30


@pytest.fixture
def desk(tmp_path: Path, anvil: Anvil, chain: Chain) -> Desk:
    return Desk.of(tmp_path, anvil, chain.deployment)


@pytest.fixture
def between(anvil: Anvil) -> Iterator[Between]:
    made = Between(anvil.port)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Hears Ctrl-C also where the tests run in the background of a shell, whose processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def begun(desk: Desk, *words: object, url: str) -> subprocess.Popen[str]:
    """Starts a command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "assize.py"), *map(str, words)],
        cwd=ROOT,
        env=dict(desk.environment) | {"ASSIZE_RPC_URL": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left(process: subprocess.Popen[str]) -> Typed:
    out, err = process.communicate(timeout=WAIT_SECONDS)
    return Typed(process.returncode, out, err)


def struck(
    desk: Desk, between: Between, words: tuple[object, ...], method: str, *, carried_out: bool = False, nth: int = 1
) -> Typed:
    """Sends Ctrl-C to a command once it asks for ``method`` the ``nth`` time, before or after that is carried out."""
    started, seen = threading.Event(), []

    def strike(asked: Asked, forward: Forward) -> Answer | None:
        started.wait(WAIT_SECONDS)
        if method not in asked.methods or len(seen) >= nth:
            return forward(asked)
        seen.append(asked)
        if len(seen) < nth:
            return forward(asked)
        if carried_out:
            forward(asked)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # the answer comes too late
        return None

    with between.interfering(strike):
        process = begun(desk, *words, url=between.url)
        started.set()
        return left(process)


def interrupted(typed: Typed, words: str) -> None:
    """Asserts the exit code and one sentence on stderr that has these words, and nothing else."""
    assert (typed.code, typed.out) == (130, ""), typed
    (sentence,) = [line for line in typed.err.splitlines() if not line.startswith("assize: sending: ")]
    assert sentence.startswith("assize: interrupted")
    assert words in sentence


DRIP = ("wallet", "drip", 5, "--json")


def told_next(desk: Desk) -> str:
    """What the next command with the key says on stderr before it does its own work."""
    typed = desk.types("wallet", "drip", 1, "--json")
    assert typed.code == 0, typed.err
    return typed.err


@pytest.mark.parametrize("loaded", ["typer", "eth_account"])
def test_during_imports(desk: Desk, anvil: Anvil, loaded: str) -> None:
    script = (
        "import builtins, os, signal, sys\n"
        "real = builtins.__import__\n"
        "def hooked(name, *rest, **named):\n"
        f"    if name == {loaded!r} and not hooked.done:\n"
        "        hooked.done = True\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest, **named)\n"
        "hooked.done = False\n"
        "builtins.__import__ = hooked\n"
        "import assize\n"
        f"sys.argv = {['assize', *map(str, DRIP)]!r}\n"
        "assize.main()\n"
    )
    environment = dict(desk.environment) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    interrupted(Typed(done.returncode, done.stdout, done.stderr), "")


def test_at_the_password_prompt(desk: Desk, anvil: Anvil) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in desk.environment.items() if name != "ASSIZE_PASSWORD_FILE"}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "assize.py"), *map(str, DRIP)],
        env=environment,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: _take_terminal(theirs),
    )
    shown = b""
    while b"password of alice" not in shown:
        shown += os.read(ours, 100)
    os.write(ours, b"\x03")
    out, err = process.communicate(timeout=WAIT_SECONDS)
    interrupted(Typed(process.returncode, out, err), "")
    os.close(ours)
    os.close(theirs)


def _take_terminal(terminal: int) -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("method", ["eth_chainId", "eth_estimateGas"])
def test_before_anything_is_signed(desk: Desk, between: Between, method: str) -> None:
    typed = struck(desk, between, DRIP, method)
    interrupted(typed, "nothing was sent" if method == "eth_estimateGas" else "")
    assert told_next(desk) == ""


def test_after_the_journal_and_before_the_broadcast(desk: Desk, between: Between, chain: Chain) -> None:
    typed = struck(desk, between, DRIP, "eth_sendRawTransaction")
    interrupted(typed, "and not sent: the next command with this key sends it")
    assert "; typing the command again sends another; see: assize wallet sent 0x" in typed.err
    simulated = desk.types("wallet", "drip", 1, "--dry-run", "--json")
    assert (simulated.code, simulated.err, balance(desk, chain)) == (0, "", 0), "a simulation sends nothing"
    assert "from an earlier command: Token.drip(" in (said := told_next(desk))
    assert "was mined in block" in said
    assert balance(desk, chain) == 6 * TOKEN, "what was interrupted came once"


def test_while_the_broadcast_is_answered(desk: Desk, between: Between, chain: Chain) -> None:
    typed = struck(desk, between, DRIP, "eth_sendRawTransaction", carried_out=True)
    interrupted(typed, "Token.drip(")
    assert "was mined in block" in told_next(desk)
    assert balance(desk, chain) == 6 * TOKEN


def test_while_it_waits_to_be_mined(desk: Desk, between: Between, anvil: Anvil, chain: Chain) -> None:
    anvil.rpc.call("evm_setAutomine", False)
    try:
        typed = struck(desk, between, DRIP, "eth_getTransactionReceipt")
        interrupted(typed, "and is not mined yet")
    finally:
        anvil.rpc.call("evm_setAutomine", True)
        anvil.rpc.call("evm_mine")
    hash_ = typed.err.split("was sent as ")[1].split()[0]
    (row,) = desk.types("wallet", "sent", "alice", "--json").json
    assert row["nonce"] == 0
    assert "was mined in block" in row["became"]
    assert hash_ in row["became"]
    assert hash_ in told_next(desk)
    assert balance(desk, chain) == 6 * TOKEN


def test_between_two_calls_of_a_command(desk: Desk, between: Between) -> None:
    desk.types("wallet", "drip", 5)
    typed = struck(desk, between, ("credits", "buy", 2), "eth_estimateGas", nth=2)
    interrupted(typed, "Token.approve(")
    assert "was mined in block" in typed.err
    assert "Credits.buy(amount=2 ASZ) was not sent" in typed.err
    assert "sends another" not in typed.err
    assert desk.types("credits", "buy", 2, "--json").code == 0


def test_while_a_transaction_signed_elsewhere_waits(desk: Desk, between: Between, anvil: Anvil, chain: Chain) -> None:
    from protocol.node.wallet import Keystores

    unsigned = desk.types("wallet", "drip", 5, "--unsigned", "--from", "alice", "--json").json
    fields = {name: value for name, value in unsigned.items() if name not in ("from", "description")} | {"type": 2}
    numbers = {name: int(fields[name]) for name in ("value", "maxFeePerGas", "maxPriorityFeePerGas")}
    alice = Keystores(desk.folder / "keystores").open("alice", "pw")
    raw = "0x" + alice.sign_transaction(fields | numbers).hex()
    typed = struck(desk, between, ("send", raw), "eth_sendRawTransaction", carried_out=True)
    interrupted(typed, "it may have been sent; send it again to see what became of it: 0x")
    assert "mined before: Token.drip(" in desk.types("send", raw).err
    assert balance(desk, chain) == 5 * TOKEN


def test_in_a_command_that_only_reads(desk: Desk, between: Between) -> None:
    interrupted(struck(desk, between, ("node", "list"), "eth_getBlockByNumber", nth=2), "")


# The RPC is killed


def killed_at(method: str, carried_out: bool) -> Callable[[Asked, Forward], Answer | None]:
    """Answers nothing from the first request of this method on."""
    dead: list[bool] = []

    def interfere(asked: Asked, forward: Forward) -> Answer | None:
        if dead or method in asked.methods:
            if carried_out and not dead:
                forward(asked)
            dead.append(True)
            return None
        return forward(asked)

    return interfere


@pytest.mark.parametrize(
    ("method", "carried_out", "words"),
    [
        ("eth_chainId", False, "no RPC answers at"),
        ("eth_estimateGas", False, "nothing was sent"),
        ("eth_sendRawTransaction", False, "and the RPC does not say whether it arrived"),
        ("eth_sendRawTransaction", True, "and the RPC does not say whether it arrived"),
        ("eth_getTransactionReceipt", False, "and the RPC does not say whether it arrived"),
    ],
)
def test_a_killed_rpc_leaves_a_sentence_and_the_next_command_says_what_became_of_it(
    desk: Desk, between: Between, chain: Chain, method: str, carried_out: bool, words: str
) -> None:
    with between.interfering(killed_at(method, carried_out)):
        typed = desk.types(*DRIP, ASSIZE_RPC_URL=between.url)
    assert typed.code == 3
    assert len(typed.err.strip().splitlines()) == 1
    assert words in typed.err
    said = told_next(desk)
    assert ("from an earlier command: Token.drip(" in said) == ("signed as" in typed.err)
    assert balance(desk, chain) == (6 if "signed as" in typed.err else 1) * TOKEN


def balance(desk: Desk, chain: Chain) -> int:
    (row,) = desk.types("wallet", "balance", "--keystore", "alice", "--json").json
    return int(row["token_wei"])


# The disk is full


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("wallet", "new", "dora"), 2, "cannot write the keystore"),
        (("wallet", "export", "alice", "{desk}/out.json"), 2, "cannot write {desk}/out.json"),
        (DRIP, 2, "cannot write the journal"),
    ],
)
def test_a_full_disk_is_a_sentence_and_sends_nothing(
    desk: Desk, anvil: Anvil, chain: Chain, words: tuple[object, ...], code: int, sentence: str
) -> None:
    done = on_a_full_disk(desk, *(str(word).replace("{desk}", str(desk.folder)) for word in words))
    assert done.code == code, done.err
    (said,) = done.err.splitlines()
    assert sentence.replace("{desk}", str(desk.folder)) in said
    assert sorted(path.name for path in (desk.folder / "keystores").iterdir()) == ["alice.json", "box.json"]
    assert balance(desk, chain) == 0


def test_a_disk_that_fills_up_stops_a_transaction_before_it_is_sent(desk: Desk, chain: Chain) -> None:
    assert desk.types("wallet", "drip", 1).code == 0
    done = on_a_full_disk(desk, *DRIP)
    assert done.code == 2, done.err
    (said,) = done.err.splitlines()
    (journal,) = (desk.folder / "state").glob("*.sqlite")
    assert said == f"assize: cannot write the journal {journal}: disk I/O error"
    assert balance(desk, chain) == TOKEN


def on_a_full_disk(desk: Desk, *words: object) -> Typed:
    """Runs a command whose files cannot grow beyond 200 bytes."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "assize.py"), *map(str, words)],
        env=dict(desk.environment),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)),
        check=False,
    )
    return Typed(done.returncode, done.stdout, done.stderr)
