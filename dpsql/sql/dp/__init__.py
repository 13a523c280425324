"""``SELECT WITH DP``: noisy aggregates, groups, and their exact query."""
