"""The analyst's side of a server.

connect.py         opening a session, on local data or on an owner's server
remote_session.py  a session on an owner's server, and its exchange of messages
channel.py         addresses, tokens, certificates, and messages over Arrow Flight
wire.py            messages between client and server, and their codec
"""
