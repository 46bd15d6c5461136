"""Notices: what happens on the chain to one's nodes and runs, as messages that each go out once."""
