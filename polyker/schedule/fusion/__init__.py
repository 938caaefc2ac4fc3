"""Loop fusion: which statements share loops, and the tree of those that do."""
