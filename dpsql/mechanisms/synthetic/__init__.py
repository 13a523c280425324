"""Synthetic rows: marginals chosen and measured privately, and a model fitted to these releases."""
