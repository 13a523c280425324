"""Exact queries in Spark's SQL."""
