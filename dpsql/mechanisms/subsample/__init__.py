"""Subsample and aggregate.

blocks.py            results of blocks of units, their combiners and votes
subsample.py         the operator, and combiners of numbers
stable_questions.py  streams of votes, of which only those without consensus are paid
"""
