"""Transport between parties: blobs, servers and the coordinator's typed client."""
