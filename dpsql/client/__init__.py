"""A session on the owner's server, without data, policy or ledger at hand."""
