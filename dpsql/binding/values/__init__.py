"""Row expressions made total: they give a value whatever the data hold.

sql_types.py          SQL types, and typed expressions with public bounds
total_expressions.py  binds an expression; patterns
operators.py          arithmetic and comparison, JSON texts and maps
row_functions.py      row functions by their signatures; lists, lambdas over lists, comprehensions
temporal.py           dates, times and intervals
coercion.py           types that may meet, and casts
declared_values.py    declared values, and public bounds on lengths and work
fixed_point.py        values as integers on a public grid, and the form in which values leave the engine
"""
