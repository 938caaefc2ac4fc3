"""Which statements share loops, and the tree of those that do."""
