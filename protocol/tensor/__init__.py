"""The maths of the wire on torch tensors, bit for bit. Only worker, trainer and validator import it."""
