"""``SELECT WITH SUBSAMPLE``: blocks and their queries."""
