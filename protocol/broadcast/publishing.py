"""Publication of a version by its trainer: links and a signed manifest in the origin's store, then deltas."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import structlog

from protocol.broadcast.deltas.frames import available
from protocol.broadcast.deltas.making import SPANS, make_delta
from protocol.broadcast.version_store import DEFAULT_VERSIONS_KEPT, VersionStore
from protocol.errors import Misconfigured, Unavailable
from protocol.wire import manifest as manifests
from protocol.wire.auth import Signer
from protocol.wire.manifest import Authority, SignedManifest

KEPT_BYTES = 2 << 30
"""Most bytes of versions and deltas kept beyond need."""


def publish(
    directory: Path,
    run: int,
    version: int,
    chain_id: int,
    market: str,
    signer: Signer,
    store: VersionStore,
    chunk_bytes: int = manifests.CHUNK_BYTES,
    versions_kept: int = DEFAULT_VERSIONS_KEPT,
    least_kept: int = 1,
) -> SignedManifest:
    """Puts the model in ``directory`` into ``store`` and returns its signed manifest, whose root goes on chain.

    Of earlier versions with their deltas it keeps ``versions_kept`` in all, fewer of a large model, but ``least_kept``.

    The files are read once, to be hashed; the store links them, so that ``directory`` must not be changed in place.
    They and the delta from the version before go in before the manifest, so that an origin over the same store lists
    only what it can serve, and nodes find the delta with the version. Idempotent.
    """
    manifest = manifests.from_directory(directory, version, chunk_bytes)
    signed = manifests.sign(manifest, run, chain_id, market, signer)
    try:
        make_deltas(directory, signed, Authority(chain_id, market, signer.address), signer, store, SPANS[:1])
    except (Misconfigured, Unavailable) as error:  # a version is published without deltas rather than not at all
        structlog.get_logger("publishing").warning("delta_not_made", run=run, version=version, error=str(error))
    store.take(signed, directory)
    store.retain(run, max(least_kept, len(store.kept(run, versions_kept, KEPT_BYTES))))
    return signed


def make_deltas(
    directory: Path,
    signed: SignedManifest,
    authority: Authority,
    signer: Signer,
    store: VersionStore,
    spans: Iterable[int] = SPANS,
) -> None:
    """Puts the deltas of these ``spans`` that lead to the version in ``directory`` into ``store``, if it has the bases.

    A machine that the code does not run on makes none.
    """
    log, version = structlog.get_logger("publishing"), signed.manifest.version
    held = {(each.delta.base, each.delta.target) for each in store.deltas(signed.run)}
    for span in spans:
        base = store.manifest(signed.run, version - span) if span <= version else None
        if base is None or not store.folder(base).is_dir() or (base.manifest.root, signed.manifest.root) in held:
            continue
        if not available():
            return
        if not store.verify(base, again=True):  # whoever has it undamaged would find the delta false
            log.warning("base_damaged", run=signed.run, version=version - span)
            continue
        delta = make_delta(store, base, signed, directory, authority, signer)
        sizes = {"bytes": signed.manifest.size, "delta_bytes": None if delta is None else delta.delta.size}
        log.info("delta_made", run=signed.run, version=version, base_version=version - span, **sizes)
