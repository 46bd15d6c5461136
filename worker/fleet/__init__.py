"""Several workers of one owner on one machine, started and kept running from one file."""
