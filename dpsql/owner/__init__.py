"""Commands for the data owner.

policy_init.py    dpsql policy init, and dpsql policy import of SmartNoise's metadata
policy_check.py   dpsql policy check
row_counts.py     its exact counts of the data, for --data
column_checks.py  checks of single columns
"""
