"""Examples of every body and answer in the OpenAPI document, made from the models themselves."""

from __future__ import annotations

from typing import Any

from protocol.wire import api
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves

_ADDRESS = "0x" + "a1" * 20
_ROOT, _BEACON, _RULES = b"\x11" * 32, b"\x22" * 32, b"\x33" * 32
_SIGNATURE = b"\x44" * 65
_NOW = 1_790_000_000
_LISTED = pack_assignments((Listing(7, 2), Listing(9, 2)))
_LEAVES = pack_leaves([Leaf(0, 1_000, _ROOT)])
_OFFER = api.Offer(
    device="NVIDIA H100 80GB HBM3",
    memory_bytes=85 << 30,
    engine="vllm",
    tokens_per_second=2400.0,
    tokens_per_job=3100.0,
    least_price_wei="2000000000",
)
_NODE = api.NodeStatus(
    node=7, role="worker", owner=_ADDRESS, state="alive", version=12, last_seen_seconds=2.5, reason="", offer=_OFFER
)
_ASSIGNMENT = api.Assignment(
    round=41,
    run=1,
    step=41,
    policy_version=12,
    beacon=_BEACON,
    open_block=8_123_456,
    deadline=_NOW + 600,
    assignments=_LISTED,
    jobs=[0, 1],
)

EXAMPLES: dict[str, dict[str, Any]] = {
    type(body).__name__: body.model_dump(mode="json", exclude_none=True)
    for body in (
        api.ErrorBody(error="the work phase of round 41 has ended"),
        api.Health(ok=True, run=1, head=8_123_460),
        api.StatusReport(
            run=1,
            head=8_123_460,
            step=41,
            version=12,
            rounds_open=2,
            rounds_settled=38,
            rounds_void=1,
            jobs_accepted=590,
            jobs_void=18,
            jobs_fraud=0,
            escrow_wei="480000000000000000000",
            reserved_wei="20000000000000000000",
            credits_wei={_ADDRESS: "3100000000000000000"},
            slashed_wei={},
            nodes=[_NODE],
            waiting="paused by the coordinator's operator: moving the disk",
        ),
        api.RunDescription(
            run=1,
            rules_hash=_RULES,
            rules={"version": 1, "max_tokens": 1024},
            chain=api.ChainIdentity(
                chain_id=84_532, registry=_ADDRESS, market=_ADDRESS, rounds=_ADDRESS, credits=_ADDRESS, token=_ADDRESS
            ),
            trainer=_ADDRESS,
            coordinator=_ADDRESS,
            sources=["https://relay.example.org"],
        ),
        api.Heartbeat(node=7, version=12, hardware=api.Hardware(cpu_cores=16, memory_bytes=128 << 30), offer=_OFFER),
        api.HeartbeatReply(state="unlisted", reasons=["has loaded version 7, the newest is 12"]),
        api.Assignments(rounds=[_ASSIGNMENT]),
        api.ArtifactReceipt(root=_ROOT),
        api.UploadRequest(node=7, size=48_213, file_hash=_ROOT),
        api.UploadTicket(
            name="5a" * 32, state="open", url="https://store.example.org/incoming/5a", expires_at=_NOW + 300
        ),
        api.ReceiptRequest(node=7, leaves=_LEAVES),
        api.StoreReceipt(time=_NOW, signature=_SIGNATURE),
        api.SubmissionRequest(
            node=7,
            beacon=_BEACON,
            leaves=_LEAVES,
            uri="https://coordinator.example.org/artifacts/",
            signature=_SIGNATURE,
        ),
        api.SubmissionReceipt(round=41, jobs=[0]),
        api.EvidenceReceipt(root=_ROOT),
    )
}
"""By name of the model."""

FILE_EXAMPLES: dict[str, Any] = {
    "application/json": {"version": 1},
    "application/vnd.apache.parquet": "PAR1…PAR1",
    "application/octet-stream": "the bytes of a blob",
    "text/plain": "assize_coordinator_uploads_total 590.0\n",
}
"""By media type, of bodies that are files."""


def with_examples(document: dict[str, Any]) -> dict[str, Any]:
    """Adds to an OpenAPI document an example of each body and answer, and returns it."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for described in (operation.get("requestBody", {}), *operation["responses"].values()):
                for media_type, content in described.get("content", {}).items():
                    content["example"] = _example(media_type, content["schema"])
    return document


def _example(media_type: str, schema: dict[str, Any]) -> Any:
    name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else schema.get("title")
    return FILE_EXAMPLES[media_type] if name is None else EXAMPLES[name]
