"""Flight SQL.

service.py   the calls of the protocol
messages.py  its protobuf messages
sql_info.py  catalogue tables and SqlInfo
"""
