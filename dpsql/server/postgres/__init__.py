"""PostgreSQL's protocol.

connection.py      the listener and its connections
login.py           start-up and login
authentication.py  SCRAM
messages.py        messages and their stream
commands.py        session commands
answers.py         answers
reports.py         errors as clients get them
catalog.py         pg_catalog
types.py           types, values and parameters
"""
