"""``assize join``: from nothing to a working node."""
