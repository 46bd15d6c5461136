"""Who takes part, with fixed keys, and what they sign."""

from __future__ import annotations

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from protocol.chain.structs import (
    MarketTerms,
    ProtocolTerms,
    RegistryTerms,
    Role,
    RoundsTerms,
    RunTerms,
    SettledLeaves,
    Submission,
)
from protocol.node.wallet import Wallet
from protocol.wire import auth
from protocol.wire.assignments import Leaf, pack_leaves

TERMS = ProtocolTerms(
    RegistryTerms(bond_per_job=150, validator_bond=1000, activation_delay=8, unbonding_delay=460),
    MarketTerms(
        notice_seconds=30,
        max_round_seconds=450,
        min_commit_seconds=10,
        min_reveal_seconds=10,
        min_juror_fee=2,
        max_strikes=6,
    ),
    RoundsTerms(fraud_slash=150, absence_penalty=70, overturn_penalty=90, appeal_bond=50, appeal_bounty=40),
    admin_delay=60,
)


def address_of(name: str) -> str:
    """The address of somebody who signs nothing."""
    return to_checksum_address(keccak(text=name)[-20:])


ADMIN, PAUSER, TREASURY = address_of("admin"), address_of("pauser"), address_of("treasury")
REQUESTER, COORDINATOR, TRAINER = address_of("requester"), address_of("coordinator"), address_of("trainer")
PROVIDERS = [address_of("first provider"), address_of("second provider")]
JUDGES = [address_of("first judge"), address_of("second judge"), address_of("third judge")]
"""Owners of validators."""
STRANGER = address_of("stranger")
OWNERS = [*PROVIDERS, *JUDGES]
EVERYBODY = [*OWNERS, ADMIN, PAUSER, TREASURY, REQUESTER, COORDINATOR, TRAINER, STRANGER]

KEYS = {wallet.address: wallet for wallet in (Wallet(f"key {i}", keccak(text=f"node key {i}")) for i in range(40))}
"""Node keys, those not bound yet among them."""

BEACON = keccak(text="what a worker saw as beacon")
EVIDENCE, SALT = keccak(text="evidence"), keccak(text="salt")
LONG = 2**40
"""A deadline that never passes."""


def run_terms(rules: str, committee: int, appeal_seats: int) -> RunTerms:
    """Windows are short, so that all of a round and its appeals fits the longest round."""
    return RunTerms(
        coordinator=COORDINATOR,
        trainer=TRAINER,
        rules_hash=keccak(text=rules),
        price_per_unit=3,
        juror_fee=20,
        max_units=50,
        committee=committee,
        appeal_seats=appeal_seats,
        work_seconds=60,
        draw_seconds=15,
        commit_seconds=15,
        reveal_seconds=15,
        challenge_seconds=30 if appeal_seats else 0,
    )


def binding(chain: int, registry: str, owner: str, key: Wallet, role: Role, capacity: int, deadline: int) -> bytes:
    """A key's consent to serve."""
    return key.sign_typed(auth.node_binding(chain, registry, owner, key.address, role, capacity, deadline))


def leaves_for(jobs: list[int], units: int) -> bytes:
    """Leaves that claim as many units for each job, and more for later ones."""
    return pack_leaves([Leaf(job, units + job, keccak(text=f"artifact {job}")) for job in jobs])


def part(chain: int, rounds: str, round: int, node: int, key: str, leaves: bytes) -> Submission:
    """One worker's part of a batch, signed by ``key``."""
    uri = f"https://artifacts.example/{round}/{node}"
    signature = KEYS[key].sign_typed(auth.submission(chain, rounds, round, node, BEACON, leaves, uri))
    return Submission(node, BEACON, leaves, uri, signature)


def resupplied(batch: list[Submission]) -> list[SettledLeaves]:
    """What settling needs of a batch."""
    return [SettledLeaves(item.node, item.leaves) for item in batch]
