"""Flight SQL.

service.py   the calls of the protocol, catalogue tables and SqlInfo
messages.py  its protobuf messages
"""
