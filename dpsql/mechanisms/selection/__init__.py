"""Private selection.

above_threshold.py          the sparse vector technique; interactive thresholds
exponential.py              the exponential mechanism and its kin
generalised_exponential.py  candidates of different sensitivities
utility_forms.py            absolute values, greatest and least of sums
"""
