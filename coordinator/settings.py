"""Settings of the coordinator's two processes: ``ASSIZE_COORDINATOR_*``, or an env file."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from protocol.node.settings import NodeSettings, settings_config


class CoordinatorSettings(NodeSettings):
    """Settings beyond those of every node.

    Args:
        run: the run that this coordinator drives.
        rules: file with the run's rules; the hash of their canonical bytes is on chain.
        database_url: empty for SQLite under ``state_dir``.
        redis_url: Redis for leases and notifications.
        coming_rules: file of the rules announced for the run, served before they are in effect, if any.
        host: address at which the API listens.
        port: port at which the API listens.
        relays: URLs of relays that serve checkpoints.
        origin: URL of the trainer, which serves them too.
        jobs_per_round: most jobs of a round; free capacities may allow fewer.
        first_round_nodes: workers that must be ready before the first round opens.
        max_rounds: number of rounds after which to stop; None for no limit.
        last_version: version at which to stop; None for no limit.
        tick_seconds: pause between ticks of the driver; a submission ends it early.
        lease_seconds: time for which a heartbeat keeps a node eligible for listing.
        version_lag: versions a listed node's checkpoint may be behind the newest.
        relay_wait_seconds: longest wait of a claim for the other claims of its round.
        relay_margin_seconds: time before the work deadline at which that wait ends.
        confirmations: blocks on top of an event before it is mirrored.
        max_artifact_bytes: largest artifact.
        max_evidence_bytes: largest evidence.
    """

    model_config = settings_config("ASSIZE_COORDINATOR_")

    run: int = Field(ge=0, lt=1 << 63)
    rules: Path
    coming_rules: Path | None = None
    database_url: str = ""
    redis_url: str = "redis://127.0.0.1:6379/0"
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    relays: tuple[str, ...] = ()
    origin: str | None = None
    jobs_per_round: int = Field(default=16, ge=1, le=256)
    first_round_nodes: int = Field(default=1, ge=1)
    max_rounds: int | None = None
    last_version: int | None = None
    tick_seconds: float = Field(default=0.1, gt=0)
    lease_seconds: float = Field(default=15.0, gt=0)
    version_lag: int = Field(default=4, ge=0)
    relay_wait_seconds: float = Field(default=5.0, ge=0)
    relay_margin_seconds: float = Field(default=5.0, ge=0)
    confirmations: int = Field(default=0, ge=0)
    max_artifact_bytes: int = Field(default=64 << 20, ge=1)
    max_evidence_bytes: int = Field(default=16 << 20, ge=1)

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.state_dir / 'coordinator.db'}"
