"""The second lock: proves from a text what one privacy unit can move. It shares no code with the binder.

lock.py           the gate before the engine; proofs per shape
check.py          derives what one unit moves, and compares it with the charge
duckdb_reader.py  reads DuckDB's serialised parse tree
spark_reader.py   reads Spark's text
tree.py           the tree that both readers build
from_clause.py    FROM: whose rows are read, and joins
expressions.py    expressions, ranges of integers, and caps
facts.py          symbols for equal values
casts.py          casts that DuckDB adds, and types that may leave
running_sums.py   statistics of candidates and their scores
utilities.py      scores that are no plain sums
"""
