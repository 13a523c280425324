"""What clients of PostgreSQL's protocol send besides dpsql: session commands, and questions to PostgreSQL's catalogue."""
