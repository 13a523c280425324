"""The same exact queries in Spark's SQL: its own tables of rewrites, with the reason for each."""
