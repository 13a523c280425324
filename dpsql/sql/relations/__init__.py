"""Items of a FROM clause: tables, joins and subqueries, with their privacy unit."""
