"""The owner's server: statements go in, answers come out, and the data, the ledger and the tokens stay with their owner."""
