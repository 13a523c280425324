"""Subsample and aggregate: blocks, their results, and how these are combined."""
