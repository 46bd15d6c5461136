"""Bodies of the coordinator's HTTP API, shared by server and clients.

    GET  /health                              -> Health
    GET  /status?run=R&details=true           -> StatusReport; with details, offers and reasons of nodes
    GET  /runs/{run}                          -> RunDescription
    GET  /rules/{hash}                        -> canonical JSON of the rules (bytes)
    POST /heartbeats                          signed   Heartbeat -> HeartbeatReply
    GET  /nodes/{node}/assignments?wait=S     signed   -> Assignments
    PUT  /rounds/{round}/jobs/{job}/artifact  signed   Parquet bytes -> ArtifactReceipt
    POST /rounds/{round}/jobs/{job}/uploads   signed   UploadRequest -> UploadTicket
    POST /uploads/{name}?wait=S               signed   -> UploadTicket, once the file was uploaded
    PUT  /rounds/{round}/jobs/{job}/blob      signed   blob of what is on chain, by a juror -> ArtifactReceipt
    POST /rounds/{round}/receipts             signed   ReceiptRequest -> StoreReceipt
    POST /rounds/{round}/submissions          signed   SubmissionRequest -> SubmissionReceipt
    GET  /artifacts/{root}?run=R              -> blob (`protocol.wire.artifact_blob`)
    PUT  /evidence/{root}                     signed   bytes -> EvidenceReceipt
    GET  /evidence/{root}                     -> bytes

Every refusal is an `ErrorBody` with a 4xx, or 503 while the coordinator's store or chain is out of reach or too many
bodies arrive at once. Refusing a request with a body closes the connection. Hashes, roots and byte strings are bytes in
Python and lower-case 0x-hex in JSON; wei are decimal strings; times are unix seconds. Unknown fields are refused on
both sides. PURE.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.wire.canonical import Bytes32, HexBytes, Signature

Address = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]
Wei = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,77})$")]
Id = Annotated[int, Field(ge=0, lt=1 << 256)]
NodeId = Annotated[int, Field(ge=0, lt=1 << 32)]
Version = Annotated[int, Field(ge=0, lt=1 << 32)]
Job = Annotated[int, Field(ge=0, le=255)]
Seconds = Annotated[int, Field(ge=0, lt=1 << 40)]
Text = Annotated[str, Field(max_length=2000)]
Rate = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
HeaderName = Annotated[str, Field(pattern=r"^(content-type|x-(amz|goog|ms)-[a-z-]{1,60})$")]
HeaderValue = Annotated[str, Field(pattern=r"^[ -~]{0,1000}$")]
NodeState = Literal["alive", "late", "dead", "unlisted"]


class Body(BaseModel):
    """Base of every body: frozen, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StoreRefusal(Body):
    """A store's statement at ``time`` that it does not serve the artifact ``root`` (`protocol.wire.receipts`)."""

    root: Bytes32
    time: Seconds
    signature: Signature


class ErrorBody(Body):
    """The reason of a refusal, in one sentence; for an artifact that a store does not serve, signed."""

    error: Text
    refusal: StoreRefusal | None = None


class Health(Body):
    """The process answers and drives ``run``; ``head`` is the newest block that it has folded.

    ``runs`` are all runs that it drives, ``run`` the first of them; absent if it is the only one.
    """

    ok: bool
    run: Id
    head: int
    runs: list[Id] | None = None

    @property
    def driven(self) -> tuple[int, ...]:
        """The runs that it drives."""
        return tuple(self.runs or (self.run,))


class ChainIdentity(Body):
    """The deployment that a run belongs to; a node on another one is talking to the wrong coordinator."""

    chain_id: int
    registry: Address
    market: Address
    rounds: Address
    credits: Address
    token: Address


class RunDescription(Body):
    """Everything a node needs to take part in a run. ``rules`` are for display; only ``rules_hash`` binds."""

    run: Id
    rules_hash: Bytes32
    rules: dict[str, Any]
    chain: ChainIdentity
    trainer: Address
    coordinator: Address
    sources: list[Text]
    origin: Text | None = None

    @property
    def weights_from(self) -> tuple[str, ...]:
        """The relays; the origin only if there are none, since it has to serve the relays.

        Servers only: a coordinator has nobody read a directory, or use credentials for a bucket, that it names.
        """
        relays = tuple(url for url in self.sources if _is_server(url))
        return relays or ((self.origin,) if self.origin and _is_server(self.origin) else ())


def _is_server(url: str) -> bool:
    return url.startswith(("http://", "https://"))


class Hardware(Body):
    """Self-reported hardware of a node; never verified."""

    cpu_cores: Annotated[int, Field(ge=0)] = 0
    memory_bytes: Annotated[int, Field(ge=0)] = 0
    accelerators: list[Text] = []
    accelerator_memory_bytes: Annotated[int, Field(ge=0)] = 0
    software: dict[Annotated[str, Field(max_length=100)], Text] = {}


class Offer(Body):
    """Terms on which a worker takes jobs, by its own statement; never verified, since a false one costs itself alone.

    device             name of the device that computes, ``memory_bytes`` its memory; 0 for unknown
    engine             name of the engine
    canary             determinism class that it measured; null for none
    tokens_per_second  speed of its last work, proofs included, and ``tokens_per_job`` of it; null before the first
    least_price_wei    least price of a unit for which it wants jobs
    """

    device: Annotated[str, Field(max_length=200)] = ""
    memory_bytes: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    engine: Annotated[str, Field(max_length=100)] = ""
    canary: Bytes32 | None = None
    tokens_per_second: Rate | None = None
    tokens_per_job: Rate | None = None
    least_price_wei: Wei = "0"


class Heartbeat(Body):
    """A node is up and has the weights of ``version`` loaded; null before the first.

    ``available`` is false while it takes no new jobs: it drains, or has its quiet hours. Earlier
    versions send no ``offer``, and refuse one.
    """

    node: NodeId
    version: Version | None
    hardware: Hardware = Hardware()
    available: bool = True
    offer: Offer | None = None


class HeartbeatReply(Body):
    """The coordinator's view of the node, with one sentence per obstacle to being listed.

    ``heartbeat_seconds`` is the time until its next heartbeat, ``wait_seconds`` how long its requests for assignments
    may wait, unless nodes choose it. They are in the answer to a heartbeat with an offer.
    """

    state: NodeState
    reasons: list[Text] = []
    heartbeat_seconds: Annotated[float, Field(ge=1, le=600)] | None = None
    wait_seconds: Annotated[float, Field(ge=0, le=600)] | None = None


class Assignment(Body):
    """One round in which the node is listed.

    ``assignments`` is the packed list of the whole round as on chain; ``jobs`` are the node's own jobs that are not
    uploaded yet. ``deadline`` ends the work phase.
    """

    round: Id
    run: Id
    step: Annotated[int, Field(ge=0)]
    policy_version: Version
    beacon: Bytes32
    open_block: Annotated[int, Field(ge=0)]
    deadline: Seconds
    assignments: HexBytes
    jobs: list[Job]


class Assignments(Body):
    """Rounds waiting for the node's work, oldest first."""

    rounds: list[Assignment]


class ArtifactReceipt(Body):
    """The upload is durable; ``root`` is computed by the coordinator from the bytes."""

    root: Bytes32


class UploadRequest(Body):
    """Asks to upload the file of one job's artifact to the coordinator's object store: its size and keccak256."""

    node: NodeId
    size: Annotated[int, Field(ge=1, lt=1 << 63)]
    file_hash: Bytes32


class UploadTicket(Body):
    """An upload to the coordinator's object store.

    open       send ``method`` to ``url`` with ``headers`` and the file before ``expires_at``, then tell by ``name``
    checking   the file is being examined: ask again
    stored     the artifact is durable under ``root``
    refused    ``why`` the file was not taken
    """

    name: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    state: Literal["open", "checking", "stored", "refused"]
    method: Literal["PUT"] = "PUT"
    url: Annotated[str, Field(max_length=8000)] = ""
    headers: dict[HeaderName, HeaderValue] = {}
    expires_at: Seconds = 0
    root: Bytes32 | None = None
    why: Text = ""


class ReceiptRequest(Body):
    """A node's packed leaves, whose artifacts were uploaded: asks for a receipt (`protocol.wire.receipts`)."""

    node: NodeId
    leaves: HexBytes


class StoreReceipt(Body):
    """A receipt for all artifacts of the leaves, signed by the store's key at ``time``."""

    time: Seconds
    signature: Signature


class SubmissionRequest(Body):
    """A node's signed leaves for a round: the fields of `Rounds.Submission`."""

    node: NodeId
    beacon: Bytes32
    leaves: HexBytes
    uri: Text
    signature: Signature


class SubmissionReceipt(Body):
    """The leaves of these jobs are durable and will be relayed before the work deadline."""

    round: Id
    jobs: list[Job]


class EvidenceReceipt(Body):
    """The evidence is durable under its root."""

    root: Bytes32


class NodeStatus(Body):
    """One node in the live view; ``last_seen_seconds`` is null if it was never seen.

    Only where details are asked for: its ``offer``, and the ``reason`` for which it is not listed, empty if it may be.
    """

    node: NodeId
    role: Literal["worker", "validator"]
    owner: Address
    state: NodeState
    version: Version | None = None
    last_seen_seconds: float | None = None
    reason: Text = ""
    offer: Offer | None = None


class StatusReport(Body):
    """Live counts of one run: jobs are totals since it opened, ``head`` is the newest block folded.

    ``waiting`` is a sentence on why no round is being opened; empty if rounds are opened as they should be.
    """

    run: Id
    head: int
    step: int
    version: Version
    rounds_open: int
    rounds_settled: int
    rounds_void: int
    jobs_accepted: int
    jobs_void: int
    jobs_fraud: int
    escrow_wei: Wei
    reserved_wei: Wei
    credits_wei: dict[Address, Wei]
    slashed_wei: dict[Address, Wei]
    nodes: list[NodeStatus]
    waiting: Text = ""


class LatestCheckpoint(Body):
    """Newest version of a run that a SHARDCAST source can serve."""

    version: Version


class CheckpointEntry(Body):
    """A version that a SHARDCAST source can serve, and the root of its manifest."""

    version: Version
    root: Bytes32


class DeltaEntry(Body):
    """A delta that a SHARDCAST source can serve: it makes the version ``target`` from the version ``base``.

    ``base`` and ``target`` are manifest roots, ``version`` is the target's, ``delta`` the root of the delta's manifest,
    ``size`` the bytes of its frames.
    """

    version: Version
    target: Bytes32
    base: Bytes32
    delta: Bytes32
    size: Annotated[int, Field(ge=0, lt=1 << 50)]


class StoredVersion(Body):
    """A version in a store of weights: ``size`` is that of its files, ``held`` the bytes of them that are there.

    ``deltas`` are the versions that a stored delta leads from.
    """

    run: Annotated[int, Field(ge=0)]
    version: Version
    root: Bytes32
    size: Annotated[int, Field(ge=0)]
    held: Annotated[int, Field(ge=0)]
    deltas: list[Version]


class PeerTraffic(Body):
    """Bytes that a peer took from a server of weights."""

    peer: str
    sent: Annotated[int, Field(ge=0)]


class StoreStatus(Body):
    """State of a server of weights: versions, and bytes since its start.

    ``received`` counts what came from its sources, ``scrubbed_at`` is the unix time at which the last check of its disk
    ended, None before the first, ``damaged`` the versions in which checks found damage. ``peers`` are told to requests
    from the same machine only.
    """

    versions: list[StoredVersion]
    received: Annotated[int, Field(ge=0)]
    sent_chunks: Annotated[int, Field(ge=0)]
    sent_frames: Annotated[int, Field(ge=0)]
    scrubbed_at: float | None
    damaged: Annotated[int, Field(ge=0)]
    peers: list[PeerTraffic]


class CheckpointList(Body):
    """Versions of a run that a SHARDCAST source can serve, ascending, and deltas between them."""

    checkpoints: Annotated[list[CheckpointEntry], Field(max_length=1024)]
    deltas: Annotated[list[DeltaEntry], Field(max_length=1024)] = []
