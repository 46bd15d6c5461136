"""A node's claim for one job, as it stands on chain. PURE."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.receipts import places_of, ports_of
from protocol.wire.seeds import job_seed

NO_ROOT = bytes(32)
"""Root in the claim of a job that was never submitted."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One submitted job.

    beacon          hash of the opening block on the canonical chain
    signed_beacon   hash that the node signed
    manifest_root   manifest root of the round's policy version, from the chain
    units           claimed floating-point operations; ``max_units`` is the most the run pays for a job
    root            signed artifact root
    uri             submitted URI, which names places of the node's artifacts (``protocol.wire.receipts``)
    claimed_before  whether the same root was submitted earlier for another job
    stores          places of the run's own stores
    """

    chain_id: int
    rounds: str
    round: int
    job: int
    node: int
    beacon: bytes
    signed_beacon: bytes
    manifest_root: bytes
    units: int
    max_units: int
    root: bytes
    uri: str
    claimed_before: bool
    stores: tuple[str, ...] = ()

    @property
    def holders(self) -> tuple[str, ...]:
        """Places that may have the artifact, in the order to try them."""
        return tuple(dict.fromkeys((*self.stores, *places_of(self.uri))))

    @property
    def ports(self) -> frozenset[int]:
        """Ports that these places may be on."""
        return ports_of(self.stores)

    @property
    def seed(self) -> bytes:
        """The job's seed, from which its prompts and noise are derived."""
        return job_seed(self.chain_id, self.rounds, self.round, self.beacon, self.job)
