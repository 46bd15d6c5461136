"""The coordinator's clock: opens rounds, selects nodes, batches submissions, advances each phase."""
