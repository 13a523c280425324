"""What a FROM may hold: tables, joins and subqueries that carry the privacy unit along."""
