"""The coordinator's driver: opens rounds, selects nodes, batches submissions, advances each phase."""
