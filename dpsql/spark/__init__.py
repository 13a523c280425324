"""Spark: exact queries on a cluster.

spark_engine.py       the engine, and exact queries in Spark's SQL
spark_expressions.py  operators, aggregates and windows
spark_values.py       types, casts, functions and dates
"""
