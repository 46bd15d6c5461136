"""TOPLOC: short commitments to hidden states that a verifier compares with its own.

`codec` holds the bytes of a proof and the numbers that worker and validator agree on, `definition` the maths of one
chunk in plain numpy, which the compiled kernels of `protocol.tensor` are tested against.
"""
