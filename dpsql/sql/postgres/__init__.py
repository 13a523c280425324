"""PostgreSQL clients' statements other than dpsql's own: session commands and catalogue queries."""
