"""Prove on every compile that a schedule keeps every dependence; shares nothing with what chose the schedule."""
