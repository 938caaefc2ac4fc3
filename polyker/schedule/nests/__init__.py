"""Loop nests of one statement, from its register tile."""
