"""Session commands and catalogue questions of PostgreSQL's clients."""
