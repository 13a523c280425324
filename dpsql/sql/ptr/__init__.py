"""``SELECT WITH PTR``: propose, test, release."""
