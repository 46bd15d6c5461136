"""Bytes in, values out: the formats that cross between parties. Pure."""
