"""Row expressions made total: they give a value whatever the data hold.

sql_types.py          SQL types, and typed expressions with public bounds
total_expressions.py  binds an expression; patterns
operators.py          arithmetic and comparison
row_functions.py      row functions by their signatures; lists, lambdas over lists, comprehensions
documents.py          JSON texts and maps
temporal.py           dates, times and intervals
coercion.py           types that may meet, and casts
exits.py              the form in which values leave the engine
declared_values.py    constants that no declared value is like
lengths.py            public bounds on lengths and work
fixed_point.py        values as integers on a public grid
exact_moments.py      variances and correlations of exact integers
"""
