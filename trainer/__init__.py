"""The trainer: learns from accepted rollouts only, publishes weights with their provenance."""
