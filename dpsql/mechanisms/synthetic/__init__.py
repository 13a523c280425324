"""Synthetic rows from noisy marginals.

rounds.py  marginals chosen and measured in rounds, and the model fitted to them
"""
