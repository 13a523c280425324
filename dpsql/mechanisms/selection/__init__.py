"""Private selection.

above_threshold.py  the sparse vector technique; interactive thresholds
exponential.py      the exponential mechanism and its kin
utilities.py        absolute values, greatest and least of sums; scores for candidates of unequal sensitivities
"""
