"""The second lock: proves from a text what one privacy unit can move. It shares no code with the binder.

lock.py           the gate before the engine, and its cached proofs
check.py          derives how far one unit moves an answer, and compares it with the charge
from_clause.py    FROM clauses: owners of rows, joins
expressions.py    expressions: integer bounds, sensitivities, caps
scores.py         statistics of public candidates, and their scores
totality.py       no value makes a text fail: ranges of what DuckDB's bound plan computes
plan_types.py     types in DuckDB's plans: casts that can't fail, values that have a way out
facts.py          symbols of equal values, facts about relations
tree.py           the tree that both readers build
duckdb_reader.py  reads DuckDB's serialised parse tree
spark_reader.py   reads Spark's text
"""
