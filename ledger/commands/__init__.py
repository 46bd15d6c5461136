"""The ``assize ledger`` commands and their terminal output."""
