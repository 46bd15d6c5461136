"""A house of validators whose 256 slots are all taken."""

from __future__ import annotations

from eth_utils.crypto import keccak

from protocol.chain.structs import Role
from protocol.node.wallet import Wallet
from tests.model import parties
from tests.model.registry import MAX_SLOTS
from tests.model.twins import VALIDATORS, Twins

SQUATTERS = MAX_SLOTS - VALIDATORS


def fill_house(twins: Twins) -> None:
    """Takes the slots that the common start leaves, with no more than the required bond."""
    owner = parties.JUDGES[2]
    twins.must(owner, "Token", "drip", owner, SQUATTERS * parties.TERMS.registry.validator_bond)
    for number in range(SQUATTERS):
        key = _key(number)
        signature = _consent(twins, owner, key)
        twins.must(owner, "Registry", "register", Role.VALIDATOR, key.address, 1, parties.LONG, signature)
    twins.wait(twins.now + parties.TERMS.registry.activation_delay)


def contested(twins: Twins, number: int) -> int:
    """Registers the second judge's newcomer of this number; returns its node."""
    owner, key = parties.JUDGES[1], _key(SQUATTERS + number)
    twins.must(owner, "Registry", "contest", key.address, parties.LONG, _consent(twins, owner, key))
    return len(twins.model.registry.nodes)


def _key(number: int) -> Wallet:
    return Wallet(f"squatter {number}", keccak(text=f"squatter {number}"))


def _consent(twins: Twins, owner: str, key: Wallet) -> bytes:
    at = twins.contracts.deployment
    return parties.binding(at.chain_id, at.registry, owner, key, Role.VALIDATOR, 1, parties.LONG)
