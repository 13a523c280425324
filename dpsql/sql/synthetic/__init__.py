"""``CREATE SYNTHETIC TABLE``: rows that look like private ones, made of noisy marginals alone."""
