"""Verifiers of answers: each turns a completion and a task's reference into a reward, whatever the text may hold."""
