"""``ABOVE_THRESHOLD`` and ``EXPMECH`` over candidates, and thresholds that stay open."""
