"""``assize contracts``: deploy the contracts onto a network, verify them, and their administration."""
