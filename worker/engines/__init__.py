"""Inference engines behind one interface, by name."""
