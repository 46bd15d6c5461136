"""Writes to the chain: contract calls, simulated, signed, journalled and watched until final."""
