"""FROM clauses: relations that carry the privacy unit.

binder.py            the statement that is being bound, as modules below see it
catalog.py           the tables of the policy with the types of the engine
relation.py          a relation: typed columns and a hidden unit
joins.py             joins and UNION ALL, and their effect on units
subqueries.py        EXISTS, IN, scalar subqueries, LATERAL and UNNEST
projections.py       inner queries that keep private rows: projections, set operations, PIVOT and UNPIVOT
windows.py           windows over the rows of one unit
exact_aggregates.py  exact aggregates of one unit's rows
fan_out.py           bounds on the public rows that one private row meets
unit_rows.py         bounds on the rows of one unit where relations meet
scanned_periods.py   the days that a scan of a table with periods reads
plan_size.py         the limit on a plan's size; shared CTEs
"""
