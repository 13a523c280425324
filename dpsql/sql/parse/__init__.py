"""Cell text to statements: dialect, clauses, options."""
