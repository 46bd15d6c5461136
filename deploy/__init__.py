"""Putting the parties together: the whole market on one machine, contracts on a network, reports and benchmarks."""
