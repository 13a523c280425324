"""The catalogue: one table of the names of functions, aggregates, modes and units of time.

It is data without code of other folders. The parser, the binder, the lock (names alone), Spark, completion, the lexer and
the reference read it.

row_names.py        functions of a row's values, the reason why each is total, Spark's spelling; refused functions; functions
                    above private blocks
option_names.py     options and named arguments, with their readers and help
aggregate_names.py  aggregates, mechanisms and modes
date_units.py       units of time: ranges, lengths, spellings
"""
