"""The adversary zoo: every cheat we know against the real judge, without a chain. ``python -m tests.zoo``."""
