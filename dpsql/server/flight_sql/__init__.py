"""Flight SQL: what ADBC, JDBC and other clients of that protocol ask of a server, answered like a dpsql client's questions."""
