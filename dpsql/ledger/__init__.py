"""The durable ledger: grants, reservations, charges and stored answers.

ledger.py          the open ledger: reserve, settle, read budgets, entries and stored answers
own_statements.py  one analyst's view: their own statements and the totals of the others
terms.py           the granted terms, and the terms that a session may run under
accounts.py        the fold of the log: filters, their sums, open reservations, the state of a budget
entries.py         statements, read from their rows
answers.py         the file of stored answers
store.py           the connection to a ledger's file: one writer, one account; upgrades of version 1
log_file.py        rows, their hash chain, and the SQLite file that holds them
state_files.py     private files, file digests, detection of rollbacks, the lock of a server
upkeep.py          the owner's work: verify, back up, restore, forget, upgrade
"""
