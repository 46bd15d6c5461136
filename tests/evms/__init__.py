"""``make evms``: the whole market on another implementation of the chain, quick and slow, behind a grudging RPC."""
