"""Agreements between the parties of Assize, and the means every process needs to be a node."""
