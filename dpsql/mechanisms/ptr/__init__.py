"""Propose, test, release.

stability_test.py  the test, and exact distances to instability
ptr_statistics.py  the statistics it releases
iqr_scale.py       the Scale algorithm for the IQR
proposals.py       noise for a proposed sensitivity
trimmed.py         trimmed means and variances
"""
