"""Wrong words at the terminal: each is one sentence with its numbers and the mend, and the documented exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from protocol.chain.deployment import Deployment
from protocol.wire.rules import encode_rules, with_checkpoint
from tests.checkpoints import smallest
from tests.conftest import ROOT, Anvil
from tests.protocol.test_checkpoints import RULES
from tests.typing_in import Desk, Typed

REGISTER = ("node", "register", "--owner-keystore", "alice", "--node-keystore", "box")
OPEN = (
    *("run", "open", "--rules", "{desk}/rules.json", "--model-root", "0x" + "11" * 32, "--coordinator", "{alice}"),
    *("--trainer", "{alice}", "--price-per-unit", "1wei", "--max-units", 9, "--uri", "http://127.0.0.1:1"),
)
NOBODY, MISTYPED = "0x00000000000000000000000000000000000000AA", "0x00000000000000000000000000000000000000aA"

AMOUNTS = [
    ("-5", "invalid value -5…: expected a number that is not negative"),
    ("+5", "invalid amount '+5': expected tokens such as 48, 1.5 or '20 ASZ'"),
    ("1e3", "invalid amount '1e3'"),
    ("1E18", "invalid amount '1E18'"),
    ("five", "invalid amount 'five'"),
    ("", "invalid amount ''"),
    ("0", "it is 0, expected more"),
    ("0.000", "it is 0, expected more"),
    ("1,00", "invalid amount '1,00'"),
    ("1.2.3", "invalid amount '1.2.3'"),
    ("5 ETH", "invalid amount '5 ETH'"),
    ("0x10", "invalid amount '0x10'"),
    ("²", "invalid amount '²'"),
    ("1.5wei", "a wei cannot be divided"),
    ("0.0000000000000000001", "a token has 18 decimals"),
    ("9" * 60, "contracts count up to 340,282,366,920,938,463,463.374607431768211455 ASZ"),
    ("all", "expected tokens such as"),
    ("nan", "invalid amount 'nan'"),
]

WORDS: list[tuple[tuple[object, ...], int, str]] = [
    # ids
    (("node", "retire", 0), 1, "no node 0; see them with: assize node list"),
    (("node", "retire", 9999), 1, "no node 9999"),
    (("node", "retire", 1 << 40), 1, "out of range"),
    (("node", "retire", "--", "-3"), 1, "out of range"),
    (("stake", "deposit", "x", 5), 2, "expected a valid integer; see: assize stake deposit --help"),
    (("run", "show", 0), 1, "no run 0; see them with: assize run show"),
    (("run", "show", "--", "-1"), 1, "out of range"),
    (("run", "show", "seven"), 2, "expected a valid integer"),
    (("run", "close", 77), 1, "no run 77"),
    (("run", "join", 77, 1), 1, "no run 77"),
    (("run", "fund", 1 << 300, 1), 1, "out of range"),
    (("appeal", "open", 77, 0), 1, "there is no round 77"),
    (("appeal", "open", 0, 0), 2, "greater than or equal to 1"),
    (("appeal", "open", 1, 256), 2, "less than or equal to 255"),
    (("appeal", "show", 77), 1, "77 is not the number of an appeal; see: assize appeal list"),
    # roles and capacities
    ((*REGISTER, "--role", "king"), 2, "'worker', 'validator'"),
    ((*REGISTER, "--role", "worker", "--capacity", 0), 2, "greater than or equal to 1"),
    ((*REGISTER, "--role", "worker", "--capacity", 10**11), 2, "less than or equal to 4294967295"),
    ((*REGISTER, "--role", "validator", "--capacity", 4), 1, "invalid capacity 4 of a validator: expected 1"),
    ((*REGISTER, "--role", "worker", "--capacity", 3), 1, "has 0 ASZ, a worker of capacity 3 needs 3 ASZ"),
    ((*REGISTER[:-1], "bob", "--role", "worker"), 2, "no keystore bob"),
    # addresses and hashes
    (("wallet", "send", "0x12", 5), 2, "invalid address '0x12': expected 0x and 40 hex digits with a valid checksum"),
    (("wallet", "send", MISTYPED, 5), 2, "valid checksum"),
    (("wallet", "send", "bob", 5), 2, "no keystore bob"),
    (("wallet", "balance", "--address", "alice"), 2, "invalid address 'alice'"),
    (("wallet", "balance", "--address", "0x" + "g" * 40), 2, "invalid address"),
    (("credits", "redeem", 5, "--to", "mars"), 2, "invalid address 'mars'"),
    (("credits", "redeem", 5), 1, "has 0 ASZ in credits, not 5 ASZ"),
    (("credits", "buy", 5), 1, "too few tokens"),
    (("run", "join", 1, 1, "--rules-hash", "0xzz"), 2, "invalid hash '0xzz': expected 0x and 64 hex digits"),
    (("run", "join", 1, 1, "--rules-hash", "0x12"), 2, "invalid hash '0x12'"),
    # keys and files
    (("wallet", "new", "a/b"), 2, "invalid keystore name 'a/b'"),
    (("wallet", "new", "alice"), 2, "already a keystore alice"),
    (("wallet", "address", "nobody"), 2, "(there: alice, box); make one with: assize wallet new nobody"),
    (("wallet", "export", "alice", "{desk}"), 2, "exists: give another file"),
    (("wallet", "import", "eve"), 2, "give one of --key-file and --keystore-file"),
    (("wallet", "import", "eve", "--key-file", "{desk}/password"), 2, "cannot read a private key in hex"),
    (("wallet", "import", "eve", "--keystore-file", "{desk}/password"), 2, "cannot read the keystore"),
    (("traps", "list", "{desk}/nowhere"), 2, "cannot read the trap file"),
    (("run", "root", "{desk}"), 2, "no config.json in"),
    (("run", "root", "{desk}/nowhere"), 2, "no directory"),
    ((*OPEN, "--juror-fee", "1"), 2, "cannot read the rules"),
    # transactions signed elsewhere
    (("send", "0xzz"), 2, "which is no hex either"),
    (("send", ""), 1, "not a signed transaction"),
    (("send", "0x02"), 1, "not a signed transaction: expected the hex that a signer prints"),
    (("send", "0x02f8" + "00" * 50), 1, "not a signed transaction"),
    (("send", "0xf8" + "11" * 100), 1, "not a signed transaction"),
    (("send", "{desk}/password"), 1, "got 'pw'"),
    (("send", "-"), 1, "got ''"),
    (("credits", "buy", 5, "--from", NOBODY), 2, "add --unsigned or --dry-run"),
    (("credits", "buy", 5, "--unsigned", "--from", "0x12"), 2, "invalid address '0x12'"),
    # words that there are not
    (("walet",), 2, "no such command 'walet'. Did you mean 'wallet'"),
    (("wallet", "drpi", 5), 2, "Did you mean 'drip'?; see: assize wallet --help"),
    (("wallet", "drip", 5, "--rpcc", "x"), 2, "no such option: --rpcc"),
    (("wallet", "drip"), 2, "missing argument 'AMOUNT'; see: assize wallet drip --help"),
    (("wallet", "drip", 5, "--network", "moon"), 2, "moon"),
    (("wallet", "drip", 5, "--fee-cap-gwei", 0), 2, "greater than or equal to 1"),
    (("wallet", "drip", 2_000_000), 1, "the faucet gives one address 1,000,000 ASZ in all"),
    (("completion", "tcsh"), 2, "'bash', 'zsh', 'fish'"),
    (("localnet", "down", "--root", "{desk}/net"), 2, "no local network is running in"),
    (("localnet", "status", "--root", "{desk}/broken"), 2, "cannot read the local network's state"),
    (("localnet", "up", "--root", "{desk}/password"), 2, "cannot make the state folder"),
    (("localnet", "up", "--root", "{desk}"), 2, "holds files that no local network made, and would be emptied"),
    (("wallet", "send", "0x" + "0" * 40, 1), 1, "too few tokens"),
    (("wallet", "sent", "alice", "--count", 0), 2, "greater than or equal to 1"),
]

PLACES: list[tuple[dict[str, object], int, str]] = [
    ({"ASSIZE_RPC_URL": "http://127.0.0.1:1"}, 3, "no RPC answers at http://127.0.0.1:1"),
    ({"ASSIZE_RPC_URL": "ftp://x"}, 2, "invalid RPC URL 'ftp://x': expected http(s)://host"),
    ({"ASSIZE_RPC_URL": "127.0.0.1:8545"}, 2, "invalid RPC URL"),
    ({"ASSIZE_RPC_URL": "http://[::1"}, 2, "invalid RPC URL"),
    ({"ASSIZE_RPC_URL": "http://127.0.0.1:99999"}, 3, "no RPC answers"),
    ({"ASSIZE_ADDRESSES": "{desk}/nowhere"}, 2, "cannot read the address file"),
    ({"ASSIZE_ADDRESSES": "{desk}"}, 2, "Is a directory; give --addresses"),
    ({"ASSIZE_ADDRESSES": "{desk}/password"}, 2, "invalid address file"),
    ({"ASSIZE_ADDRESSES": None}, 2, "addresses"),
    ({"ASSIZE_KEYSTORE": "nobody"}, 2, "no keystore nobody"),
    ({"ASSIZE_KEYSTORE": "{desk}"}, 2, "Is a directory"),
    ({"ASSIZE_KEYSTORE": "{desk}/password"}, 2, "cannot read the keystore"),
    ({"ASSIZE_KEYSTORE": "{desk}/addresses.json"}, 2, "is not a version 3 keystore"),
    ({"ASSIZE_KEYSTORE": None}, 2, "name one with --keystore; see them with: assize wallet list"),
    ({"ASSIZE_PASSWORD_FILE": "{desk}/addresses.json"}, 2, "wrong password for keystore alice"),
    ({"ASSIZE_PASSWORD_FILE": "{desk}/nowhere"}, 2, "cannot read the password file"),
    ({"ASSIZE_PASSWORD_FILE": "/dev/null"}, 2, "is empty"),
    ({"ASSIZE_PASSWORD_FILE": None}, 2, "cannot ask for the password without a terminal"),
    ({"ASSIZE_STATE_DIR": "{desk}/password"}, 2, "cannot write the journal"),
    ({"ASSIZE_FEE_CAP_GWEI": "-1"}, 2, "greater than or equal to 1"),
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, anvil_process: Anvil, deployment: Deployment) -> Desk:
    """One for all: nothing that is typed here changes anything."""
    made = Desk.of(tmp_path_factory.mktemp("desk"), anvil_process, deployment)
    (made.folder / "broken").mkdir()
    (made.folder / "broken" / "network.json").write_text("{")
    return made


def filled(desk: Desk, text: object) -> str:
    return str(text).replace("{desk}", str(desk.folder)).replace("{alice}", NOBODY)


def refused(typed: Typed, code: int, words: str) -> None:
    """Asserts the exit code and one sentence on stderr that has these words, and nothing else."""
    assert (typed.code, typed.out) == (code, ""), typed
    (sentence,) = typed.err.strip().splitlines()
    assert sentence.startswith("assize: ")
    assert words in sentence


@pytest.mark.parametrize(("amount", "words"), AMOUNTS)
def test_what_is_no_amount(desk: Desk, amount: str, words: str) -> None:
    refused(desk.types("wallet", "drip", amount), 2, words)


@pytest.mark.parametrize(("line", "code", "words"), WORDS)
def test_wrong_words_are_a_sentence(desk: Desk, line: tuple[object, ...], code: int, words: str) -> None:
    refused(desk.types(*(filled(desk, word) for word in line)), code, words)


@pytest.mark.parametrize(("changed", "code", "words"), PLACES)
def test_a_wrong_place_is_a_sentence(desk: Desk, changed: dict[str, object], code: int, words: str) -> None:
    given = {name: None if value is None else filled(desk, value) for name, value in changed.items()}
    refused(desk.types("wallet", "drip", 5, **given), code, words)


def test_the_rpc_of_another_chain_is_told_by_both_ids(desk: Desk) -> None:
    path = desk.folder / "moved.json"
    content = json.loads((desk.folder / "addresses.json").read_text())
    path.write_text(json.dumps(content | {"chainId": 4242}))
    typed = desk.types("wallet", "drip", 5, "--addresses", path)
    refused(typed, 2, "wrong chain: the address file is for chain 4242")
    assert "serves chain 31337" in typed.err
    path.write_text(json.dumps(content | {"startHash": "0x" + "11" * 32}))
    refused(desk.types("node", "list", "--addresses", path), 2, "the address file is of another chain")


OPENED: dict[str, Any] = {"--price-per-unit": "1wei", "--juror-fee": 1, "--max-units": 9, "--uri": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({}, 0, ""),
        ({"--work-seconds": 10**6}, 1, "invalid seconds: all windows, with four draws"),
        ({"--work-seconds": 0}, 2, "greater than or equal to 1"),
        ({"--committee": 2}, 1, "invalid committee"),
        ({"--committee": 17}, 2, "less than or equal to 15"),
        ({"--appeal-seats": 5}, 1, "invalid challengeSeconds: expected more than 0 with appeal seats"),
        ({"--price-per-unit": 9}, 1, "invalid pricePerUnit"),
        ({"--max-units": "x"}, 2, "expected a valid integer"),
        ({"--model-root": "0x12"}, 2, "invalid hash '0x12'"),
        ({"--coordinator": MISTYPED}, 2, "valid checksum"),
    ],
)
def test_a_run_opens_with_the_default_terms_and_others_are_refused_with_the_mend(
    desk: Desk, changed: dict[str, object], code: int, words: str
) -> None:
    rules, model = desk.folder / "rules.json", desk.folder / "model"
    if not model.exists():
        smallest(model, bytes(8))
    rules.write_bytes(encode_rules(with_checkpoint(RULES, model)))
    parties = {"--rules": rules, "--model-root": "0x" + "11" * 32, "--coordinator": NOBODY, "--trainer": NOBODY}
    given = parties | OPENED | changed
    typed = desk.types("run", "open", *(word for pair in given.items() for word in pair), "--dry-run")
    if code:
        refused(typed, code, words)
    else:
        assert typed.code == 0, typed.err


@pytest.mark.parametrize("columns", [20, 40])
def test_a_narrow_terminal_cuts_nothing_that_is_copied(desk: Desk, columns: int) -> None:
    typed = desk.types("wallet", "list", "--json")
    owner = next(row["address"] for row in typed.json if row["name"] == "alice")
    for words in (("wallet", "list"), ("node", "list"), ("run", "show"), ("wallet", "balance")):
        shown = desk.types(*words, COLUMNS=columns)
        assert shown.code == 0, shown.err
        if words[0] == "wallet":
            assert owner in "".join(shown.out.split()).replace("│", "")
    environment = dict(desk.environment) | {"COLUMNS": str(columns)}
    helped = subprocess.run(
        [sys.executable, str(ROOT / "assize.py"), "wallet", "import", "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(name in helped.stdout for name in ("--key-file", "--keystore-file", "--password-file", "--json"))
    sentence = desk.types("wallet", "drip", "five", COLUMNS=columns)
    refused(sentence, 2, "invalid amount 'five'")
