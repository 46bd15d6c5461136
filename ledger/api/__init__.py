"""The ledger over HTTP: read-only, described by OpenAPI."""
