"""Propose, test, release.

stability_test.py  the test, and exact distances to instability
ptr_statistics.py  the statistics it releases, exact or with noise; the Scale algorithm for the IQR
trimmed.py         trimmed means and variances
"""
