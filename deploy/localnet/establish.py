"""Setup of a network on an empty chain: contracts, wallets, nodes, and a funded run that the workers have joined."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from deploy.localnet.parties import (
    COORDINATOR,
    GAS_MONEY,
    REQUESTER,
    RUN_ESCROW,
    SCRYPT_N,
    TERMS,
    TRAINER,
    TREASURY,
    VALIDATOR_MARGIN,
    Party,
)
from deploy.localnet.services import NetworkLayout
from deploy.runs.run_file import RunFile
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import Rpc
from protocol.chain.structs import Role
from protocol.chain.writing import actions
from protocol.chain.writing.deploying import deploy
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Keystores, Wallet, read_password
from protocol.wire import manifest
from protocol.wire.rules import encode_rules, rules_hash

ROLES = {"worker": Role.WORKER, "validator": Role.VALIDATOR}
DEPLOYER = "deployer"


@dataclass(frozen=True, slots=True)
class Established:
    """The network on chain: node ids and owner addresses by party, the run and its trainer."""

    run: int
    nodes: dict[str, int]
    owners: dict[str, str]
    trainer: str


class KeyRing:
    """Every party's wallet, and senders for their transactions during setup."""

    def __init__(self, layout: NetworkLayout) -> None:
        self.layout = layout
        self.keystores = Keystores(layout.keystores)

    def make_keys(self, names: Iterable[str]) -> None:
        """Creates the keystores, all with one random password."""
        self.layout.root.mkdir(parents=True, exist_ok=True)
        self.layout.password_file.touch(mode=0o600)
        self.layout.password_file.write_text(secrets.token_hex(16) + "\n")
        password = read_password(self.layout.password_file)
        self.wallets = {name: self.keystores.create(name, password, SCRYPT_N) for name in names}

    def wallet(self, name: str) -> Wallet:
        """Returns a party's wallet."""
        return self.wallets[name]

    @contextlib.contextmanager
    def sender(self, chain: Chain, name: str) -> Iterator[Sender]:
        """Opens a sender for the key ``name``."""
        journal = self.layout.root / "state" / "setup" / f"{name}.db"
        journal.parent.mkdir(parents=True, exist_ok=True)
        sender = Sender(chain, self.wallet(name), journal)
        try:
            yield sender
        finally:
            sender.close()


def establish(
    layout: NetworkLayout, run_file: RunFile, parties: tuple[Party, ...], say: Callable[[str], None]
) -> Established:
    """Sets everything up, announcing each step through ``say``. The model directory must exist."""
    keys = KeyRing(layout)
    say("making wallets")
    keys.make_keys(
        [DEPLOYER, REQUESTER, COORDINATOR, TRAINER, TREASURY, *(n for p in parties for n in (p.owner, p.key))]
    )
    give_gas(layout.url("chain"), [wallet.address for wallet in keys.wallets.values()])
    say("deploying the contracts")
    treasury = keys.wallet(TREASURY).address
    deploy(layout.url("chain"), keys.wallet(DEPLOYER), TERMS, treasury).save(layout.addresses)
    chain = Chain.connect(layout.url("chain"), layout.addresses)
    say("registering nodes and bonding their stake")
    nodes = {party.name: register(keys, chain, party) for party in parties}
    say("opening and funding the run")
    run = open_run(keys, chain, layout, run_file)
    agreed = rules_hash(encode_rules(run_file.rules))
    for party in parties:
        if party.role == "worker":
            with keys.sender(chain, party.owner) as sender:
                actions.join_run(sender, run, nodes[party.name], agreed).carry_out("join")
    chain.close()
    owners = {party.name: keys.wallet(party.owner).address for party in parties}
    return Established(run, nodes, owners, keys.wallet(TRAINER).address)


def give_gas(rpc_url: str, addresses: Iterable[str]) -> None:
    """Sets each address's balance of native coins, which anvil allows."""
    rpc = Rpc(rpc_url)
    for address in addresses:
        rpc.call("anvil_setBalance", address, hex(GAS_MONEY))
    rpc.close()


def register(keys: KeyRing, chain: Chain, party: Party) -> int:
    """Takes tokens from the faucet, bonds and registers a party's node; returns the node id."""
    with keys.sender(chain, party.owner) as sender:
        margin = VALIDATOR_MARGIN if party.role == "validator" else 0
        actions.drip(sender, party.bond + margin + party.purse).carry_out("drip")
        role = ROLES[party.role]
        node = actions.register_node(sender, keys.wallet(party.key), role, party.capacity).carry_out("register").node
        if margin:
            actions.deposit(sender, node, margin).carry_out("margin")
        return node


def open_run(keys: KeyRing, chain: Chain, layout: NetworkLayout, run_file: RunFile) -> int:
    """Opens the run with its rules and the model as version 0, and funds it; returns the run id."""
    encoded = encode_rules(run_file.rules)
    layout.rules.write_bytes(encoded)
    terms = run_file.terms.on_chain(keys.wallet(COORDINATOR).address, keys.wallet(TRAINER).address, rules_hash(encoded))
    root = manifest.from_directory(layout.model, 0).root
    with keys.sender(chain, REQUESTER) as sender:
        actions.drip(sender, RUN_ESCROW).carry_out("drip")
        run = actions.open_run(sender, terms, root, layout.url("coordinator")).carry_out("open").run
        actions.fund_run(sender, run, RUN_ESCROW).carry_out("fund")
    return run
