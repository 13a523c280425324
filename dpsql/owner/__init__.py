"""Commands for the data owner.

policy_init.py    dpsql policy init, and dpsql policy import of SmartNoise's metadata
policy_check.py   dpsql policy check
source_checks.py  its checks that read rows: types, formats, and exact counts for --data
column_checks.py  its findings; checks of single columns
"""
