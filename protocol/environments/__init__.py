"""Tasks and their rewards, on which validators, workers and the trainer must agree."""
