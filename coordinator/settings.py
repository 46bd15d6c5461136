"""Settings of the coordinator's two processes: ``ASSIZE_COORDINATOR_*``, or an env file."""

from __future__ import annotations

import shlex
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from protocol.node.profile import PathWords
from protocol.node.settings import NodeSettings, settings_config
from protocol.transport.http import is_http

MOST_WEBHOOKS = 8
"""Most webhooks: each has a thread of its own."""


class HookKind(StrEnum):
    """Kinds of events that webhooks are told, as typed in the settings."""

    ROUND_OPENED = "round.opened"
    ROUND_SETTLED = "round.settled"
    ROUND_VOID = "round.void"
    FRAUD = "verdict.fraud"
    SLASHED = "node.slashed"
    CHECKPOINT = "checkpoint.published"
    ESCROW = "escrow.low"
    PAUSED = "run.paused"
    RESUMED = "run.resumed"
    DRAINED = "run.drained"
    CLOCK = "clock.taken_over"


class WebhookSettings(BaseModel):
    """A receiver of events, a table ``[[coordinator.webhooks]]`` of the profile.

    Args:
        url: http(s) URL that is sent each event.
        secret_file: file with the secret of the signatures, ``whsec_`` and 24 to 64 bytes in base64.
        events: kinds of events to send; by default all.
        most_kept: most events kept for a receiver that does not answer; of more, the oldest are dropped.
        longest_pause_seconds: longest pause between attempts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(max_length=1000)
    secret_file: Path
    events: tuple[HookKind, ...] = tuple(HookKind)
    most_kept: int = Field(default=10_000, ge=1, le=1_000_000)
    longest_pause_seconds: float = Field(default=300.0, ge=0.05, le=3600.0)

    @field_validator("url")
    @classmethod
    def _reachable(cls, url: str) -> str:
        if not is_http(url):
            raise ValueError("expected http(s)://host")
        return url

    @property
    def id(self) -> str:
        """Names the webhook in the database."""
        return sha256(self.url.encode()).hexdigest()[:16]

    @property
    def shown(self) -> str:
        """The part of the URL that may be shown: its path may be a secret."""
        return "/".join(self.url.split("/")[:3]).rpartition("@")[2].removeprefix("https://").removeprefix("http://")


LEAST_KEEP_DAYS = 8
"""A receipt promises an artifact for 7 days from its time, which may be a little later than another party's clock."""


def _words(value: Any) -> Any:
    """Returns numbers, paths and lists of them as text."""
    if isinstance(value, (list, tuple)):
        return str(value[0]) if len(value) == 1 else shlex.join(map(str, value))
    return str(value) if isinstance(value, (int, Path)) else value


class CoordinatorSettings(NodeSettings):
    """Settings beyond those of every node.

    Args:
        run: the run that this coordinator drives, or several, such as "2 3".
        rules: file with the run's rules, whose canonical bytes have the hash on chain; of several runs in their order.
        database_url: empty for SQLite under ``state_dir``.
        redis_url: Redis for leases and notifications.
        coming_rules: file of the rules announced for the run, served before they are in effect, if any.
        host: address at which the API listens.
        port: port at which the API listens.
        api_processes: processes that answer at that port.
        api_metrics_port: port of the API's metrics, beside the driver's `metrics_port`, and of several processes those
            after it; 0 disables them.
        precheck_metrics_port: port of the metrics of the process that examines uploads; 0 disables them.
        relays: URLs of relays that serve checkpoints.
        origin: URL of the trainer, which serves them too.
        jobs_per_round: most jobs of a round; free capacities may allow fewer.
        first_round_nodes: workers that must be ready before the first round opens.
        max_rounds: number of rounds after which to stop; None for no limit.
        last_version: version at which to stop; None for no limit.
        tick_seconds: pause between ticks of the driver; a submission ends it early.
        lease_seconds: time for which a heartbeat keeps a node eligible for listing; longer among many nodes, which
            are told to send fewer.
        version_lag: versions a listed node's checkpoint may be behind the newest.
        relay_wait_seconds: longest wait of a claim for the other claims of its round.
        relay_margin_seconds: time before the work deadline at which that wait ends.
        confirmations: blocks on top of an event before it is mirrored.
        max_artifact_bytes: largest artifact.
        max_evidence_bytes: largest evidence.
        objects: object store of artifacts and evidence, such as s3://bucket/prefix; empty for folders of ``state_dir``.
        keep_days: days for which artifacts and evidence of rounds that ended are kept; None for always.
        max_node_uploads: most artifacts of one node in rounds that have not ended.
        max_node_bytes: most bytes of these.
        webhooks: receivers of events.
    """

    model_config = settings_config("ASSIZE_COORDINATOR_")

    run: Annotated[str, BeforeValidator(_words)]
    rules: Annotated[str, PathWords(), BeforeValidator(_words)]
    coming_rules: Path | None = None
    database_url: str = ""
    redis_url: str = "redis://127.0.0.1:6379/0"
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    api_processes: int = Field(default=1, ge=1, le=16)
    api_metrics_port: int = Field(default=0, ge=0, le=65535)
    precheck_metrics_port: int = Field(default=0, ge=0, le=65535)
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
    objects: str = ""
    keep_days: int | None = Field(default=None, ge=LEAST_KEEP_DAYS)
    max_node_uploads: int = Field(default=1024, ge=1)
    max_node_bytes: int = Field(default=16 << 30, ge=1)
    webhooks: tuple[WebhookSettings, ...] = Field(default=(), max_length=MOST_WEBHOOKS)

    @field_validator("webhooks")
    @classmethod
    def _different(cls, webhooks: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
        if len({each.url for each in webhooks}) < len(webhooks):
            raise ValueError("two webhooks have one URL: name all its events in one of them")
        return webhooks

    @model_validator(mode="after")
    def _with_ports(self) -> Self:
        most = 65536 - self.api_processes
        if self.api_metrics_port > most:
            raise ValueError(
                f"invalid api_metrics_port {self.api_metrics_port}: expected at most {most}, as {self.api_processes} "
                "api_processes use the ports after it, too"
            )
        return self

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        runs, files = self.run.split(), self._files
        if not runs or any(not each.isascii() or not each.isdigit() or int(each) >= 1 << 63 for each in runs):
            raise ValueError(f"invalid run {self.run!r}: expected the number of a run, or several such as '2 3'")
        if len(set(map(int, runs))) < len(runs):
            raise ValueError(f"invalid run {self.run!r}: expected each run once")
        if len(files) != len(runs):
            raise ValueError(
                f"invalid rules {self.rules!r}: expected one file for each of the {len(runs)} runs, in the same order"
            )
        return self

    @property
    def runs(self) -> tuple[int, ...]:
        """The runs, in the order of the settings."""
        return tuple(map(int, self.run.split()))

    @property
    def rules_files(self) -> dict[int, Path]:
        """The file of each run's rules."""
        return dict(zip(self.runs, self._files, strict=True))

    @property
    def _files(self) -> list[Path]:
        several = len(self.run.split()) > 1
        return [Path(each) for each in (shlex.split(self.rules) if several else [self.rules])]

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.state_dir / 'coordinator.db'}"
