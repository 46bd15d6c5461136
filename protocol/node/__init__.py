"""What every process needs to be a node: settings, keys, the loop, logs, and the commands a person types."""
