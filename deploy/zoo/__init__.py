"""A stranger's cheating worker before the judge: made in one process, judged in another."""
