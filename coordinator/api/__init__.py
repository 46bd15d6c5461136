"""The coordinator's HTTP side: authenticated requests in, durable claims and typed answers out."""
