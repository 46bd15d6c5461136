"""``make alerts``: the alert rules tested by promtool, then each fired by a fault on a real local network."""
