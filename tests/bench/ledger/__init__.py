"""A chain of a million events, and a ledger that keeps it: how fast, in how much memory, how quick to answer."""
