"""Judging by hand: inspect an artifact, replay a bundle, report the result."""
