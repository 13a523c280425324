"""Statements of PostgreSQL's clients beside dpsql's own: session commands, and questions to PostgreSQL's catalogue."""
