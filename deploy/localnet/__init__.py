"""The whole market on one machine: processes, parties, live view and outcome."""
