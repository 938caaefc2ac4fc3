"""What accesses, operations and register tiles cost on a machine: pure functions from a statement to cycles."""
