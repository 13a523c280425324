"""ABOVE_THRESHOLD, EXPMECH and DECLARE: choices among public candidates.

choice.py      the block of both mechanisms
candidates.py  one statistic per candidate: one pass or a nested loop
utility.py     the statistic: a tree over exact aggregates, with public factors
declared.py    DECLARE: a stream of questions
"""
