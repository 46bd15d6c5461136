"""Runs of the whole market on files of tasks: ``make task-runs``."""
