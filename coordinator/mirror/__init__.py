"""The chain's events as tables: folded, followed and undone across reorganisations."""
