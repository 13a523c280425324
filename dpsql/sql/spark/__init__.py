"""Exact queries in Spark's SQL: tables of rewrites, with the reason for each."""
