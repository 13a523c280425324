"""The public statement above private blocks.

intervals.py       intervals of output columns
interval_ends.py   ends of intervals in SQL; bins of histograms
traced_columns.py  output columns as sums of released columns
window_sums.py     sums over neighbouring groups and their intervals
kept_results.py    results kept as public relations
"""
