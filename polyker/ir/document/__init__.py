"""Programs and types as JSON documents: the kinds of nodes, and what is written of a program."""
