"""``SELECT WITH SUBSAMPLE``: its block, and the queries of its subsample blocks."""
