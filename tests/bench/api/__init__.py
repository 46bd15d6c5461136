"""What it costs to admit a signed request, and every way to use one again or for something else."""
