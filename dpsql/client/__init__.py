"""A session on the owner's server, without data, policy or ledger at hand.

connect.py       opens a session, on local data or on a server
session.py       the remote session, and its plans of several statements
conversation.py  one message and its reply: checks, stops, timeouts
channel.py       addresses, tokens, and messages over Arrow Flight
certificates.py  TLS certificates of the server's authority and of the analyst
"""
