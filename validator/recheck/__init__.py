"""Recheck: a share of decided jobs is judged again, jurors' bundles are compared, and wrong verdicts are appealed."""
