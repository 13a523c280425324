"""``SELECT WITH STABLE``: answers by inverse sensitivity."""
