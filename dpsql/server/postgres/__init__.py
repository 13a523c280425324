"""PostgreSQL's protocol.

connection.py      the listener and its connections
login.py           start-up and login
authentication.py  SCRAM
messages.py        messages, their stream, and errors
commands.py        session commands
answers.py         answers, in the worker
catalog.py         pg_catalog
types.py           types, values and parameters
"""
