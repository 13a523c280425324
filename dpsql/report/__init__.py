"""The owner's report, and the displays of budget and ledger."""
