"""Synthetic rows from noisy marginals.

rounds.py  marginals chosen and measured in rounds
models.py  the model fitted to released marginals: it sees no private row
"""
