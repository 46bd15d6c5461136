"""Judges rollouts: follows the rounds it sits in, checks artifacts with one prefill, commits and reveals its vote."""
