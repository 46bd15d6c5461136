"""``make images``, ``make wheel``, ``make manifests``: what is under ``deploy/``, built and tried by other tools."""
