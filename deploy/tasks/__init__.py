"""Task files: built from datasets, shown, tried by hand, and put into runs."""
