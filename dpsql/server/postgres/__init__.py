"""PostgreSQL's protocol.

connection.py      the listener and its connections
login.py           start-up and login
authentication.py  SCRAM
messages.py        messages, their stream, and errors
commands.py        session commands
worker_side.py     answers, in the worker
pg_catalog.py      the catalogue and the information schema, and queries over them
types.py           types, values and parameters
"""
