"""``CREATE SYNTHETIC TABLE``: rows made from noisy marginals."""
