"""The analyst's side of a server: the same session, with no data, no policy file and no ledger."""
