"""Reads the chain: typed views, final blocks, decoded logs and a gap-free tail."""
