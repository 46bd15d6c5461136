"""The chain as typed values: what the contracts say, what they emitted, and transactions that are mined once."""
