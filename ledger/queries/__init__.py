"""Questions the ledger answers: lists, stories, lineage, fairness and explanations."""
