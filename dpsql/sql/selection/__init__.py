"""``ABOVE_THRESHOLD``, ``EXPMECH`` and declared thresholds."""
