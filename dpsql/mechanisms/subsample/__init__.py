"""Subsample and aggregate.

blocks.py     results of blocks of units
subsample.py  the operator, and combiners without declared bounds
votes.py      combiners and votes
"""
