"""The market, started role by role as the READMEs say, each person at a host of their own."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.localnet.services import anvil_binary
from tests.network.ground import Ground
from tests.network.people import LONG_SECONDS, Count, Person, address_in
from tests.network.plan import Host
from tests.network.services import STORE_PORT
from tests.network.sharing import Sharing
from tests.s3.servers import KEY, SECRET, Kind

RPC_PORT, ANVIL_PORT = 8545, 18545
CHAIN_ID = 90_210
COIN = 10**18
OTHER, ALONE, THEIRS = "On another network", "On a machine of its own", "On machines of their own"
HOSTS = (
    Host("chain", (RPC_PORT, 8002)),
    Host("coordinator", (8001, STORE_PORT), ((8001, (8011, 8012)),)),
    Host("trainer", (8710,)),
    Host("vera", (8720,)),
    Host("vito", (8720,)),
    Host("alice"),
    Host("bob"),
    Host("mallory"),
    Host("auditor"),
)
"""Eight, and the auditor's. The chain's host has the ledger and the third validator as well."""
VERSIONS_SECONDS = 1_200.0
LOOK_SECONDS = 5.0

PROVIDER = """
echo choose-a-password > faucet.password
assize wallet new faucet --password-file faucet.password
"""
GIVE = "assize wallet send {address} {amount} --coin --keystore faucet --password-file faucet.password {network}"
NETWORK = "--addresses addresses.json --rpc http://chain.example:8545"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The versions to come to, the object store, and a model to start from; None has one made."""

    versions: int
    store: Kind
    model: Path | None = None


class Market:
    """All people, and what they start and see."""

    def __init__(self, ground: Ground, opened: ExitStack, count: Count, wanted: Wanted) -> None:
        self.ground, self.count, self.wanted = ground, count, wanted
        words: Mapping[str, Mapping[str, str]] = {
            "vito": {"keystore vera": "keystore vito", "vera": "vito", "vito.example": "vera.example"},
            "chain": {"vera": "viola", "viola.example": "vera.example"},
            "bob": {"alice": "bob"},
            "mallory": {"alice": "mallory"},
            "trainer": {"--steps 10": f"--steps {wanted.versions}"},
        }
        self.people = {host.name: Person(ground, host.name, opened, count, words.get(host.name, {})) for host in HOSTS}
        self.sharing = Sharing()

    def start(self) -> None:
        """Starts everything, in the order in which one role needs another."""
        rita = self.people["trainer"]
        making = None
        if self.wanted.model is None:
            making = rita.begins(rita.says("trainer", THEIRS, 0), "model")
        else:
            shutil.copytree(self.wanted.model, rita.site.folder / "assize" / "my-model")
        self.start_chain()
        self.deploy()
        for name, person in self.people.items():
            if name != "chain":
                person.receives(self.people["chain"], "addresses.json")
        if making is not None:
            making.waits_for("wrote the model", LONG_SECONDS)
        self.open_run()
        for name in ("vera", "vito"):
            self.start_relay(name)
        for name in ("vera", "vito", "chain"):
            self.join_validator(name)
        for name in ("alice", "bob", "mallory"):
            self.join_worker(name)
        chain = self.people["chain"]
        chain.begins(chain.says("ledger", OTHER, 1), "ledger", "http://")
        self.look()

    def start_chain(self) -> None:
        """Starts the chain, with wallets of its deployer and of a faucet in its genesis, and an RPC in front of it."""
        person, home = self.people["chain"], self.ground.sites["chain"].home
        deployer = address_in(person.types(person.says("contracts", "Onto a network", 0)))
        faucet = address_in(person.types(PROVIDER))
        genesis: dict[str, Any] = {"config": {"chainId": CHAIN_ID}, "difficulty": "0x0", "gasLimit": hex(60_000_000)}
        genesis["timestamp"] = hex(int(time.time()))
        genesis["alloc"] = {each: {"balance": hex(1_000 * COIN)} for each in (deployer, faucet)}
        (person.site.folder / "genesis.json").write_text(json.dumps(genesis))
        places = ("--init", home / "genesis.json", "--cache-path", home / "blocks")
        words = ("--chain-id", CHAIN_ID, "--port", ANVIL_PORT, "--block-time", 1, "--accounts", 1, "--silent")
        own = self.ground.plan.own("chain")
        self.ground.start("chain", "anvil", (anvil_binary(), *words, *places))
        self.ground.start("chain", "rpc", (sys.executable, "-m", "tests.network.chain", RPC_PORT, own, ANVIL_PORT))
        time.sleep(2)

    def deploy(self) -> None:
        """Deploys the contracts."""
        person = self.people["chain"]
        person.types(person.says("contracts", "Onto a network", 1))

    def give(self, shown: str, amount: float = 1) -> str:
        """Has the faucet's owner send coin to the address that somebody was shown, and tell; returns it."""
        person, address = self.people["chain"], address_in(shown)
        person.types(person.own(GIVE.format(address=address, amount=amount, network=NETWORK)))
        return address

    def open_run(self) -> None:
        """Makes the keys of coordinator and requester, opens the run, and starts both roles."""
        carol, rita = self.people["coordinator"], self.people["trainer"]
        coordinator = self.give(carol.types(carol.says("coordinator", ALONE, 0)))
        self.give(rita.types(rita.says("trainer", THEIRS, 1)), 5)
        opens = rita.says("trainer", THEIRS, 2).replace("0x" + "11" * 20, coordinator)
        *before, up = opens.splitlines()
        rita.types("\n".join(before))
        carol.receives(rita, "my-run/rules.json")
        carol.types(carol.says("coordinator", ALONE, 1))
        self.start_servers()
        carol.types(carol.says("coordinator", ALONE, 3))
        rita.begins(up, "up", "up: run 1")

    def start_servers(self) -> None:
        """Starts what the coordinator's operator has of others: a database, and an object store with its keys."""
        host, person = self.ground.plan.own("coordinator"), self.people["coordinator"]
        serving = (sys.executable, "-m", "tests.network.services")
        self.ground.start("coordinator", "postgresql", (*serving, "postgresql"))
        self.ground.start("coordinator", "store", (*serving, self.wanted.store, host))
        keys = f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        (person.site.folder / "assize" / "s3.credentials").write_text(keys)
        for label in ("postgresql", "store"):
            self.wait_until(lambda log=person.site.folder / f"{label}.log": "ready" in log.read_text(), label, 120)

    def start_relay(self, name: str) -> None:
        """Starts a relay."""
        person = self.people[name]
        person.begins(person.says("coordinator", "A relay", 1), "relay", "relay of run 1")

    def join_validator(self, name: str) -> None:
        """Makes a validator's wallet and has it join, on a host whose profile may name the network already."""
        person = self.people[name]
        whole = person.says("validator", OTHER, 0)
        block = "\n".join(line for line in whole.splitlines() if name == "chain" or "network add" not in line)
        self.give(person.types(block))
        person.begins(person.says("validator", OTHER, 1), "validator", "starting it")

    def join_worker(self, name: str) -> None:
        """Makes a worker's wallet and has it join; mallory then starts a cheat in its place."""
        person = self.people[name]
        self.give(person.types(person.says("worker", OTHER, 0)))
        person.types(person.says("worker", OTHER, 2))
        if name == "alice":
            person.begins(person.says("worker", "Several nodes on one machine", 0), "fleet", "left")
            return
        join = person.says("worker", OTHER, 1)
        if name != "mallory":
            person.begins(join, "worker", "starting it")
            return
        person.types(join.rstrip() + " --no-start")
        person.begins("python -m deploy.adversaries edited-answer", "cheat", "event")

    def look(self) -> None:
        """Notes which files are open on several hosts."""
        self.sharing.look({name: site.pids() for name, site in self.ground.sites.items()})

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float) -> None:
        """Waits, looking at the hosts meanwhile."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds:.0f} s for {what}")
            self.look()
            time.sleep(LOOK_SECONDS)

    def watch(self) -> tuple[int, int]:
        """Waits for the last version and for the cheat's slash; returns the versions, and the slashes for fraud."""
        asking, seen = self.people["bob"].terminal("asking"), (0, 0)
        asking.finishes('export PATH="$PWD/.venv/bin:$PATH"')

        def rows(words: str) -> list[dict[str, Any]]:
            shown = asking.finishes(f"assize ledger {words} --json", LONG_SECONDS).splitlines()
            return list(json.loads(next(line for line in shown if line.startswith("["))))

        def told() -> bool:
            nonlocal seen
            frauds = sum(row["cause"] == "fraud" for row in rows("slashes"))
            found = (max((row["version"] for row in rows("checkpoints")), default=0), frauds)
            if found != seen:
                self.count.say(f"version {found[0]}, {found[1]} jobs slashed for fraud")
            seen = found
            return seen[0] >= self.wanted.versions and seen[1] > 0

        self.wait_until(told, "the versions", VERSIONS_SECONDS)
        return seen

    def audit(self) -> str:
        """Has the auditor audit, from the RPC and the address file; returns "ok", or what was found."""
        auditor = self.people["auditor"]
        shown = auditor.types(auditor.says("ledger", OTHER, 0))
        return "ok" if "audit ok" in shown else shown[-500:]
