"""The Kernel IR: its nodes, printer, verifier, interpreter and index arithmetic."""
