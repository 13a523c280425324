"""The owner's server: statements go in and answers come out; data, ledger and tokens stay."""
