"""Binding: from statements to plans.

bind.py              binds a statement and caches its plan
statement_binder.py  chooses the binder of each SELECT
mode_table.py        the module and the options of each mode
public_statement.py  the statement around its private blocks: names, kept results, releases
traced_columns.py    the interpreter of the statement above the blocks: facts about each column, and window sums
intervals.py         intervals of output columns
interval_ends.py     ends of intervals in SQL
plan.py              the plan: exact SQL, operators and cost, as a value
relations/           FROM clauses that carry the privacy unit
values/              row expressions that cannot fail
dp/                  SELECT WITH DP
modes/               the other modes, choices among candidates, and DECLARE
"""
