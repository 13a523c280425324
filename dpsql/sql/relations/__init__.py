"""Items of FROM: tables, joins and subqueries, each with its privacy unit."""
