"""Setup of a network on an empty chain: contracts, wallets, nodes, and a funded run that all nodes have joined."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from deploy.localnet.parties import (
    COORDINATOR,
    ETHER,
    REQUESTER,
    TERMS,
    TRAINER,
    TREASURY,
    VALIDATOR_MARGIN,
    WATCHER,
    Party,
)
from deploy.localnet.services import NetworkLayout
from deploy.runs.run_file import RunFile
from protocol.chain.reading.client import Chain
from protocol.chain.rpc import Rpc
from protocol.chain.structs import Role
from protocol.chain.writing import actions
from protocol.chain.writing.deploying import deploy
from protocol.chain.writing.faucet import give_gas
from protocol.chain.writing.sender import Sender
from protocol.node.wallet import Keystores, read_password
from protocol.tensor.determinism import with_canary
from protocol.wire import manifest
from protocol.wire.rules import ArtifactStore, encode_rules, rules_hash, with_checkpoint, with_stores

DEPLOYER = "deployer"
GAS_MONEY = 100 * ETHER
RUN_ESCROW = 200_000 * ETHER

SCRYPT_N = 1 << 12
"""Low scrypt cost, for keys that live for minutes and are opened a dozen times at start."""


@dataclass(frozen=True, slots=True)
class Established:
    """The network on chain: node ids and owner addresses by party, the run and its trainer."""

    run: int
    nodes: dict[str, int]
    owners: dict[str, str]
    trainer: str


class KeyRing:
    """Every party's wallet, in new keystores with one random password, and senders for setup transactions."""

    def __init__(self, layout: NetworkLayout, names: Iterable[str]) -> None:
        self.layout = layout
        layout.root.mkdir(parents=True, exist_ok=True)
        layout.password_file.touch(mode=0o600)
        layout.password_file.write_text(secrets.token_hex(16) + "\n")
        password = read_password(layout.password_file)
        stores = Keystores(layout.keystores)
        self.wallets = {name: stores.create(name, password, SCRYPT_N) for name in dict.fromkeys(names)}

    def sender(self, chain: Chain, name: str) -> closing[Sender]:
        """Opens a sender for the key ``name``, to be used in a ``with`` statement."""
        journal = self.layout.root / "state" / "setup" / f"{name}.db"
        journal.parent.mkdir(parents=True, exist_ok=True)
        return closing(Sender(chain, self.wallets[name], journal))


def establish(
    layout: NetworkLayout,
    run_file: RunFile,
    parties: tuple[Party, ...],
    stores: Sequence[str],
    say: Callable[[str], None],
) -> Established:
    """Sets everything up, announcing each step through ``say``. The model directory must exist.

    ``stores`` are the URLs of the run's stores of artifacts. The first is the coordinator's, whose receipts count.
    """
    say("making wallets")
    owned = (name for party in parties for name in (party.owner, party.key))
    storing = dict(zip((COORDINATOR, *(f"store-{number}" for number in range(2, 9))), stores, strict=False))
    keys = KeyRing(layout, [DEPLOYER, REQUESTER, COORDINATOR, TRAINER, TREASURY, WATCHER, *storing, *owned])
    with closing(Rpc(layout.url("chain"))) as rpc:
        for wallet in keys.wallets.values():
            give_gas(rpc, wallet.address, GAS_MONEY)
    say("deploying the contracts")
    treasury = keys.wallets[TREASURY].address
    deploy(layout.url("chain"), keys.wallets[DEPLOYER], TERMS, treasury).save(layout.addresses)
    chain = Chain.connect(layout.url("chain"), layout.addresses)
    say("registering nodes and bonding their stake")
    nodes = {party.name: register(keys, chain, party) for party in parties}
    say("opening and funding the run")
    named = [ArtifactStore(key=keys.wallets[name].address, url=url) for name, url in storing.items()]
    pinned = with_checkpoint(with_stores(run_file.rules, named, 1), layout.model)
    encoded = encode_rules(with_canary(pinned, layout.model))
    run = open_run(keys, chain, layout, run_file, encoded, stores[0])
    agreed = rules_hash(encoded)
    for party in parties:
        with keys.sender(chain, party.owner) as sender:
            actions.join_run(sender, run, nodes[party.name], agreed).carry_out("join")
    chain.close()
    owners = {party.name: keys.wallets[party.owner].address for party in parties}
    return Established(run, nodes, owners, keys.wallets[TRAINER].address)


def register(keys: KeyRing, chain: Chain, party: Party) -> int:
    """Takes tokens from the faucet, bonds and registers a party's node; returns the node id."""
    with keys.sender(chain, party.owner) as sender:
        margin = VALIDATOR_MARGIN if party.role == "validator" else 0
        actions.drip(sender, party.bond + margin + party.purse).carry_out("drip")
        role = Role[party.role.upper()]
        node = actions.register_node(sender, keys.wallets[party.key], role, party.capacity).carry_out("register").node
        if margin:
            actions.deposit(sender, node, margin).carry_out("margin")
        return node


def open_run(keys: KeyRing, chain: Chain, layout: NetworkLayout, run_file: RunFile, encoded: bytes, url: str) -> int:
    """Opens the run with its ``encoded`` rules, the model as version 0 and its coordinator at ``url``, and funds it.

    Returns the run id.
    """
    layout.rules.write_bytes(encoded)
    coordinator, trainer = keys.wallets[COORDINATOR].address, keys.wallets[TRAINER].address
    terms = run_file.terms.on_chain(coordinator, trainer, rules_hash(encoded))
    root = manifest.from_directory(layout.model, 0).root
    with keys.sender(chain, REQUESTER) as sender:
        actions.drip(sender, RUN_ESCROW).carry_out("drip")
        run = actions.open_run(sender, terms, root, url).carry_out("open").run
        actions.fund_run(sender, run, RUN_ESCROW).carry_out("fund")
    return run
