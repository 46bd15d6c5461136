"""Deltas from one version to a later one. Anybody may make them; every chunk that they make is verified.

frames      encoding of one range of a file, as gaps and steps from the values of the base
kernels     its loops, compiled
making      frames and a signed manifest from two versions on disk
applying    the deltas that lead from a version that is held to the one that is wanted
"""
