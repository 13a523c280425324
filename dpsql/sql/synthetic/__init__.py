"""``CREATE SYNTHETIC TABLE``: synthetic rows from noisy marginals alone."""
