"""Verification of a deployment before a token is staked: code, constructors' arguments, references and terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.node.commands.contracts.terms_file import terms_rows, written

if TYPE_CHECKING:
    from protocol.chain.reading.client import Chain
    from protocol.chain.structs import ProtocolTerms

PARTNERS = ("token", "admin", "registry", "market", "rounds", "credits")
"""Constructors' arguments that are other contracts of the deployment."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One thing verified: ``fault`` is empty where it holds."""

    contract: str
    what: str
    fault: str = ""


def deployed_terms(chain: Chain) -> ProtocolTerms:
    """Returns the terms that the contracts answer with."""
    from protocol.chain.structs import ProtocolTerms

    reader = chain.latest()
    delay = reader.view("Admin", "defaultAdminDelay")
    return ProtocolTerms(reader.registry_terms(), reader.market_terms(), reader.rounds_terms(), delay)


def verify_contracts(chain: Chain, wanted: ProtocolTerms | None) -> Iterator[Verified]:
    """Yields everything that is verified of a deployment; the connection has verified the references before.

    Args:
        chain: the deployment.
        wanted: the terms that it must have; None to compare none.

    Raises:
        Unavailable: the RPC does not answer, or keeps no blocks as old as the contracts.
    """
    from protocol.chain.abi import CONTRACTS
    from protocol.chain.reading.creations import deployment_creations

    yield Verified("all", "refer to one another")
    made = dict(deployment_creations(chain, chain.head().number))
    for name in CONTRACTS:
        if name not in made:
            yield Verified(name, "code", "no transaction since the deployment's start block created it")
            continue
        yield from _one(chain, name, made[name].data)
    terms = terms_rows(deployed_terms(chain))
    for name, value in terms_rows(wanted).items() if wanted else ():
        held = terms[name]
        fault = "" if held == value else f"is {written(name, held)}, expected {written(name, value)}"
        yield Verified("terms", name, fault)


def _one(chain: Chain, name: str, data: bytes) -> Iterator[Verified]:
    from protocol.chain.reading.creations import constructor_arguments, difference

    fault = difference(name, data)
    yield Verified(name, "code", fault)
    if fault:
        return
    try:
        arguments = constructor_arguments(name, data)
    except ValueError as error:
        yield Verified(name, "constructor's arguments", str(error))
        return
    faults = []
    for argument, given in arguments.items():
        partner = argument.rstrip("_")
        if partner in PARTNERS and name != "Admin" and given != (due := getattr(chain.deployment, partner)):
            faults.append(f"{partner} is {given}, the address file has {due}")
    yield Verified(name, "constructor's arguments", "; ".join(faults))
