"""``ABOVE_THRESHOLD`` and ``EXPMECH`` over candidates, and interactive thresholds."""
