"""Rewrites of reductions: their order, their form, what is computed from partial results."""
