"""The parts of every node process: settings, keys, the daemon's loop, logs and metrics, and commands."""
