"""Items of a FROM clause: tables, joins and subqueries that carry the privacy unit along."""
