"""The owner's report: its data, charts, pages, and the displays of budget and ledger."""
