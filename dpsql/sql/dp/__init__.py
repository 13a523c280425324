"""``SELECT WITH DP``: noisy aggregates, groups, and the exact query that they share."""
