"""Transport between parties: blobs, weights (SHARDCAST) and the coordinator's typed client."""
