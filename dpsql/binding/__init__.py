"""Binding: from statements to plans.

bind.py              binds a statement and caches its plan
statement_binder.py  chooses the binder of each SELECT
public_statement.py  the statement around its private blocks
plan.py              the plan: exact SQL, operators and cost, as a value
relations/           FROM clauses that carry the privacy unit
values/              row expressions that cannot fail
public/              intervals and traced columns of the statement above the blocks
dp/                  SELECT WITH DP
selection/           ABOVE_THRESHOLD, EXPMECH and DECLARE
subsample/           SELECT WITH SUBSAMPLE
modes/               the modes of one file each: PTR, STABLE, synthetic tables
"""
