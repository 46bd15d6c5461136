"""A seeded chain, its faults and its reorganisations, around the real reading, writing, mirroring and ledger code."""
