"""Programs: expressions, statements, types, printing."""
