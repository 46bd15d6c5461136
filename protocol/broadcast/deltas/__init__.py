"""Deltas from one version to a later one. Anybody may make them; every chunk that they make is verified.

frames      code of one range of a file: reordered bits, gaps and steps
kernels     its loops, compiled
making      frames and a signed manifest from two versions on disk
applying    the deltas that lead from a version that is held to the one that is wanted
"""
