"""Judges artifacts: fetches them, prefills once, measures, checks and derives a verdict."""
