"""Subsample and aggregate.

blocks.py     results of blocks of units, their combiners and votes
subsample.py  the operator, and combiners without declared bounds
"""
