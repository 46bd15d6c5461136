"""Valid encodings, made by our own encoders: where every mutation starts from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from protocol.broadcast.deltas.frames import Bytes, SharedRange
from protocol.broadcast.deltas.frames import encode as encode_frame
from protocol.node.wallet import Wallet
from protocol.wire import delta_manifest, evidence, manifest
from protocol.wire.assignments import Leaf, Listing, pack_assignments, pack_leaves
from protocol.wire.delta_manifest import DeltaFrame, DeltaManifest
from protocol.wire.evidence import Evidence, Finding, JobEvidence, JobFingerprint, Measurements
from protocol.wire.manifest import Manifest, ManifestFile
from protocol.wire.reasons import Reason
from protocol.wire.rewards import JobRewards, Rewards
from protocol.wire.rollout import Artifact, Rollout, encode
from protocol.wire.rules import EnvironmentRules, ModelRules, Rules, Sequential, Thresholds, encode_rules
from protocol.wire.tasks import LengthTarget, TaskHeader, TaskRow, TaskSource, encode_tasks
from protocol.wire.toploc.codec import ENTRIES, Proof

CHAIN_ID = 31337
ROUNDS = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
KEY = Wallet("fuzz", b"\x07" * 32)


def proofs(count: int, seed: int = 0) -> list[bytes]:
    """Well-formed proofs of nothing in particular."""
    chance = np.random.default_rng(seed)
    moduli = [65497, 65495, 40009]
    return [Proof(moduli[n % 3], tuple(chance.integers(0, 65497, ENTRIES).tolist())).encode() for n in range(count)]


def artifacts() -> list[bytes]:
    """Files of one to five rollouts, with and without proofs."""
    return [encode(_artifact(*shape)) for shape in ((1, 1, 0), (1, 3, 1), (2, 9, 1), (3, 20, 2), (5, 70, 3))]


def _artifact(count: int, tokens: int, chunks: int) -> Artifact:
    chance = np.random.default_rng(count)
    made = tuple(
        Rollout(
            chance.integers(0, 19, 4),
            chance.integers(0, 19, tokens),
            -chance.random(tokens),
            tuple(proofs(chunks, n)),
            "stop" if n % 2 else "length",
        )
        for n in range(count)
    )
    return Artifact(5, 3, 7, b"\x01" * 32, made)


def task_files() -> list[bytes]:
    """Files of tasks: of one source and of two, with and without length budgets and held-out tasks."""
    one, two = (TaskSource("own", 1),), (TaskSource("own", 1), TaskSource("other", 3))
    targets = (LengthTarget(10, (1, 2)), LengthTarget(20, (3,)))
    rows = [TaskRow((5, 6, 7), "7", "exact", held_out=n == 3, source=n % 2, weight=n + 1) for n in range(5)]
    return [
        encode_tasks(TaskHeader(bytes(32), one), [TaskRow((1,), "x", "exact")]),
        encode_tasks(TaskHeader(b"\x01" * 32, two), rows),
        encode_tasks(TaskHeader(b"\x01" * 32, two, targets, 0.5), [replace(row, budget_at=2) for row in rows]),
    ]


def rewards() -> list[bytes]:
    """Rewards of no job, of one, and of jobs with tasks from a file."""
    jobs = (JobRewards(3, 0, np.float32([0, 1])), JobRewards(3, 1, np.float32([0.5, -1, 2]), (7, 0)))
    return [Rewards(jobs[:count]).canonical for count in range(3)]


def manifests() -> list[bytes]:
    """Manifests of an empty file, of one chunk, and of several files."""
    return [one.canonical for one in _manifests()]


def signed_manifests() -> list[bytes]:
    """The same, signed."""
    return [manifest.sign(one, 1, CHAIN_ID, ROUNDS, KEY).canonical for one in _manifests()]


def _manifests() -> list[Manifest]:
    digest = manifest.hash_chunk(b"x")
    several = (ManifestFile("config.json", 700, (digest,)), ManifestFile("model.safetensors", 3000, (digest,) * 3))
    return [
        Manifest(0, 1024, (ManifestFile("empty", 0, ()),)),
        Manifest(7, 1 << 20, (ManifestFile("a", 5, (digest,)),)),
        Manifest(9, 1024, several),
    ]


def signed_deltas() -> list[bytes]:
    """Signed deltas: of one frame, and of several of two files."""
    digest = manifest.hash_chunk(b"x")
    one, two = (DeltaFrame(name, 0, 2, 5, digest) for name in ("a.safetensors", "b.safetensors"))
    frames = ((one,), (one, DeltaFrame(one.file, 2, 1, 9, digest), two))
    deltas = [DeltaManifest(7, b"\x02" * 32, 6, b"\x01" * 32, each) for each in frames]
    return [delta_manifest.sign(each, 1, CHAIN_ID, ROUNDS, KEY).canonical for each in deltas]


FRAME_BASE = np.random.default_rng(19).integers(0, 256, 512, np.uint8)
"""The file of a base version that frames are decoded with."""


def read_frame_base(file: int, offset: int, size: int) -> Bytes:
    """Bytes of the base version's one file."""
    return FRAME_BASE[offset : offset + size].copy()


def frames() -> list[bytes]:
    """Frames of values of each width, changed by little and by much, with plain bytes between them."""
    made = []
    for width, shift in ((1, 63), (2, 7), (4, 23), (8, 55)):
        near, far = FRAME_BASE.copy(), FRAME_BASE[::-1].copy()
        near[::16] ^= 1
        part = SharedRange(64, 256, 0, 64, width, shift)
        made += [encode_frame(new, 0, [part], read_frame_base) for new in (FRAME_BASE, near, far)]
    return made


def bundles() -> list[bytes]:
    """Signed evidence: of no job, of one that could not be read, of one measured."""
    unread = JobEvidence(0, 1, bytes(32), Reason.SHAPE, 5, None, (Finding(Reason.SHAPE, "x", None, 1.0, 2.5),), None)
    measured = JobEvidence(1, 2, b"\x02" * 32, Reason.ACCEPTED, 1 << 60, 1 << 60, (), _measured(3, 2))
    return [evidence.sign(_bundle(jobs), KEY).canonical for jobs in ((), (unread,), (unread, measured))]


def _bundle(jobs: tuple[JobEvidence, ...]) -> Evidence:
    return Evidence(
        chain_id=CHAIN_ID,
        rounds=ROUNDS,
        run=1,
        round=2**70,
        attempt=0,
        juror=3,
        policy_version=4,
        manifest_root=b"\x01" * 32,
        rules_hash=b"\x02" * 32,
        thresholds={"sampling_fraud": None, "sampling_void": 0.01},
        jobs=jobs,
        fingerprints=tuple(
            JobFingerprint(job.job, "torch", bytes(32), np.ones(8 * len(found.tokens_N), np.float32), found.gap_min_N)
            for job in jobs
            if (found := job.measurements) is not None
        ),
    )


def _measured(rollouts: int, chunks: int) -> Measurements:
    chance = np.random.default_rng(1)
    columns = {}
    for name in Measurements.__slots__:
        size = rollouts * chunks if name.endswith("_C") else rollouts
        columns[name] = chance.random(size).astype(np.float32)
        if Measurements.__annotations__[name] == "U32":
            columns[name] = np.full(size, chunks, np.uint32)
    return Measurements(**columns)


def rules() -> list[bytes]:
    """Rules with and without a fraud bound, in both number formats."""
    thresholds = Thresholds(
        sampling_void=0.01, sampling_fraud=0.5, logprob_median=1e-3, logprob_tail=1e-2, toploc=0.01, toploc_mean=0.005
    )
    made = Rules(
        model=ModelRules(dtype="float32", head_dtype="float32"),
        environment=EnvironmentRules(name="arithmetic", params={"digits": 2}),
        groups_per_job=4,
        samples_per_group=4,
        temperature=1.0,
        max_tokens=44,
        async_level=1,
        thresholds=thresholds,
        sequential=Sequential(sigma=1e-4),
    )
    changed = made.model_copy(
        update={
            "model": ModelRules(dtype="bfloat16", head_dtype="bfloat16"),
            "environment": EnvironmentRules(name="arithmetic"),
            "thresholds": thresholds.model_copy(update={"sampling_fraud": None}),
        }
    )
    return [encode_rules(made), encode_rules(changed)]


def packed() -> list[bytes]:
    """Packed assignments, leaves and reasons, each behind the byte that says which."""
    leaves = [Leaf(job, 1 << 40, bytes([job]) * 32) for job in (0, 3, 255)]
    listings = [Listing(1, 1), Listing(9, 200), Listing(4, 55)]
    return [b"\x00" + pack_assignments(listings), b"\x01" + pack_leaves(leaves), b"\x02\x07" + bytes([4, 255])]
