"""What a task is and what an answer is worth: validators, workers and the trainer must agree on both."""
