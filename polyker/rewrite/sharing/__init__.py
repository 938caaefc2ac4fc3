"""Rewrites that compute a value once, or again where that is cheaper than to store it."""
