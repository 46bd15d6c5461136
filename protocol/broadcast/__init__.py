"""SHARDCAST: weights from the trainer's origin through relays to compute nodes, every chunk verified at every hop.

    publishing.publish          model directory -> links, a signed manifest and deltas in a store (the trainer)
    versions.fetch_checkpoint   sources -> a model directory in a store (workers, validators)

Served by ``server``, relayed by ``relay``:

    GET /runs/{run}/checkpoints/latest              LatestCheckpoint
    GET /runs/{run}/checkpoints?wait=S              CheckpointList; with If-None-Match, waits for a change
    GET /runs/{run}/checkpoints/{version}?root=0x…  signed manifest, canonical JSON
    GET /runs/{run}/deltas/0x…                      signed delta, canonical JSON
    GET /chunks/{hash}                              bytes of a chunk or frame, with Range

Sources are untrusted: the manifest must be signed by the trainer and have the root that is on chain, and each chunk
must match its hash before it is written to disk, at its place in its file. Chunks kept from an interrupted fetch, or
from an earlier version, are not fetched again. A delta may be anybody's: its frames make chunks, which are verified as
if they had been fetched.
"""
