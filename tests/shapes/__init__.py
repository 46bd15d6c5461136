"""Shapes of real models, with random weights, through the whole market."""
