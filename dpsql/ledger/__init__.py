"""The durable ledger: grants, reservations, charges and stored answers.

ledger.py          the open ledger: reserve, settle, read
own_statements.py  one analyst's statements, and the totals of the others
terms.py           the granted terms, and the terms that a session may run under
accounts.py        the fold of the log: filters, open reservations, the state of a budget
answers.py         the file of stored answers
store.py           the connection to a ledger's file: one writer, one account; upgrades of version 1
log_file.py        rows, their hash chain, their SQLite file, and the statements read from them
state_files.py     private files, file digests, detection of rollbacks, the lock of a server
upkeep.py          the owner's work: verify, back up, restore, forget, upgrade
"""
