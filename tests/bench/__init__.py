"""Benchmarks: ``tests/bench/NAME`` is what ``make bench-NAME`` runs."""
