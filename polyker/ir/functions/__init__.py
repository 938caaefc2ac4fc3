"""The scalar functions of the notation: one table that says everything of each but its vector code."""

from __future__ import annotations

from polyker.ir.functions.function import Cost, Function
from polyker.ir.functions.table import OPERATORS, TABLE, cost_of

__all__ = ["OPERATORS", "TABLE", "Cost", "Function", "cost_of"]
