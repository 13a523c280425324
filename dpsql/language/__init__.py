"""The language: from the text of a cell to statements.

tokens.py            tokens of a cell, checked; GoogleSQL spellings become DuckDB's
dialect.py           the sqlglot dialect: DuckDB SQL, mode clauses, named arguments; the catalogue by sqlglot class
statements.py        statements with their spans; EXPLAIN, SHOW, DECLARE, CREATE SYNTHETIC TABLE; typing errors
spellings.py         other spellings, rewritten into plainer ones; now() and CURRENT_DATE as constants
options.py           OPTIONS, named arguments and literal times, read exactly
advice.py            hints for unreadable texts; modes written in unusual places
parameters.py        parameter values as literals
labels.py            labels of ENUMs and their order
parameter_values.py  Python values that a parameter accepts
postgres.py          texts of PostgreSQL clients: session commands and catalogue queries
"""
