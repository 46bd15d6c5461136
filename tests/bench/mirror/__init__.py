"""How fast the chain's events become committed rows: ours, web3.py's two usual ways, and fetching alone."""
