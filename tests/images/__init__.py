"""``make images``, ``make wheel``, ``make manifests``: what is under ``deploy/``, built and tried with its own tools."""
