"""The judging queue: judges in process, or orders and collects judgements from background workers."""
