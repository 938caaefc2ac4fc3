"""Dual numbers: an interpreter that carries derivatives beside values, to compare compiled derivatives with."""
