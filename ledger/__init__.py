"""The ledger: every credit, bond, vote and checkpoint, rebuilt from the chain alone."""
