"""The coordinator: lists nodes, takes uploads, relays submissions and drives the clock of a run's rounds."""
