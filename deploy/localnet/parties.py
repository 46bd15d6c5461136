"""Parties of the local network, with their keys and initial funds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from protocol.node.commands.contracts.terms_file import read_terms
from protocol.wire.rules import DEFAULT_ENGINE

ETHER = 10**18

TERMS = read_terms(Path(__file__).parents[1] / "terms" / "trial.toml")
BOND_PER_JOB, VALIDATOR_BOND = TERMS.registry.bond_per_job, TERMS.registry.validator_bond
VALIDATOR_MARGIN = 10 * ETHER
"""Deposit on top of the bond: a validator at the exact minimum is deactivated by the first vote it misses."""

APPEAL_MONEY = 100 * ETHER
TRAP_MONEY = 20 * ETHER + APPEAL_MONEY
"""Deposits of a trap and a decoy, and of an appeal against a juror that missed the trap."""


@dataclass(frozen=True, slots=True)
class Party:
    """One node's owner and session key. ``capacity`` is the number of jobs in flight, 1 for validators.

    ``purse`` is the owner's balance besides the bond, in token wei; ``engine`` is a worker's engine. One that
    ``plants`` is the requester's own worker, which plants the faults that the requester announced.
    """

    name: str
    role: Literal["worker", "validator"]
    capacity: int = 1
    adversary: str | None = None
    purse: int = 0
    engine: str = DEFAULT_ENGINE
    plants: bool = False

    @property
    def owner(self) -> str:
        """Keystore name of the wallet that holds the stake."""
        return REQUESTER if self.plants else f"{self.name}-owner"

    @property
    def honest(self) -> bool:
        """True if no job of it may be found fraudulent."""
        return self.adversary is None and not self.plants

    @property
    def key(self) -> str:
        """Keystore name of the session key on the host."""
        return f"{self.name}-key"

    @property
    def bond(self) -> int:
        """Bond required to register, in token wei."""
        return BOND_PER_JOB * self.capacity if self.role == "worker" else VALIDATOR_BOND


def parties(
    adversary: str, jobs_in_flight: int, validators: int, engine: str = DEFAULT_ENGINE, plants: bool = False
) -> tuple[Party, ...]:
    """Returns two honest workers, the second on ``engine``, one adversary, and so many validators.

    With ``plants`` there is a worker of the requester's own.
    """
    own = (Party("requester-worker", "worker", jobs_in_flight, purse=TRAP_MONEY, plants=True),) if plants else ()
    return (
        Party("worker-1", "worker", jobs_in_flight),
        Party("worker-2", "worker", jobs_in_flight, engine=engine),
        *own,
        Party("cheat", "worker", jobs_in_flight, adversary),
        *(Party(f"validator-{number}", "validator") for number in range(1, validators + 1)),
    )


def faulty_committee(jobs_in_flight: int) -> tuple[Party, ...]:
    """Returns two honest workers whose owners can afford appeals, and four validators, one of them faulty."""
    return (
        Party("worker-1", "worker", jobs_in_flight, purse=APPEAL_MONEY),
        Party("worker-2", "worker", jobs_in_flight, purse=APPEAL_MONEY),
        Party("validator-1", "validator"),
        Party("validator-2", "validator"),
        Party("validator-3", "validator"),
        Party("faulty", "validator", adversary="condemns-honest"),
    )


REQUESTER, COORDINATOR, TRAINER, TREASURY = "requester", "coordinator", "trainer", "treasury"
WATCHER = "watcher"
"""Checks decided jobs again."""
