"""The market over a network: a host for each party, with addresses, delays and files of its own."""
