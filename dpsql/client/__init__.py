"""The analyst's side of a server.

wire.py          messages between client and server, and their codec
certificates.py  tLS certificates of a connection: the authority of the server's, and the analyst
channel.py       addresses of servers, analysts' tokens, and messages over Arrow Flight, which no
connect.py       opening a session, on local data or on an owner's server
conversation.py  one message to a server and its reply: the reply is checked, and a stop is passe
session.py       a session on an owner's server, which has the data, the policy and the ledger
"""
