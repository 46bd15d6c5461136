"""A thousand transactions from two processes over a chain and an RPC that lose things; ours beside naive sending."""
