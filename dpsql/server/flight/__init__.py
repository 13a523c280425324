"""Arrow Flight, for dpsql's own clients and for those of Flight SQL.

front.py       the server: authentication, and the calls of dpsql's own clients
flight_sql.py  the calls of Flight SQL, catalogue tables and SqlInfo
protobuf.py    the protobuf messages of Flight SQL
"""
