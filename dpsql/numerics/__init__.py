"""Exact numbers: integer arrays, rounding, interval arithmetic.

exact_numbers.py        integers in arrays and columns, fractions rounded in favour of privacy
interval_arithmetic.py  intervals around real numbers: samplers, calibration, ends of noisy moments
"""
