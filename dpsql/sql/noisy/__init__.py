"""SELECT WITH DP: aggregates, groups and the exact query that all of them share."""
