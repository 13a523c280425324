"""The public statement above private blocks.

intervals.py       intervals of output columns
interval_ends.py   ends of intervals in SQL
traced_columns.py  the interpreter: facts about each column, such as its traces to released columns
window_sums.py     sums over neighbouring groups and their intervals
kept_results.py    results kept as public relations
"""
