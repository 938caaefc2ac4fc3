"""Rewrites that store copies of operands in another layout or type."""
