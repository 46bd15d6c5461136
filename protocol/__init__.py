"""What the parties of Assize must agree on, and what every process needs to be a node."""
