"""The ledger's database: tables, rows, the index that fills them, undo, and the state hash."""
