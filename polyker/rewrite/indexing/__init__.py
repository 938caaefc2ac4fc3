"""Rewrites of indices and subscripts: split domains, collapsed and transposed dimensions, diagonals, padding."""
