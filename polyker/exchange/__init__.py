"""What other compilers read of a program bound to types: iteration domains and accesses as data."""
