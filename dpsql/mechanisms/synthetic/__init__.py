"""Synthetic rows: marginals that are chosen and measured privately, and a model that is fitted to these releases."""
