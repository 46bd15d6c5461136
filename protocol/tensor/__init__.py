"""The maths of the wire on torch tensors, bit for bit; imported only by worker, trainer and validator."""
