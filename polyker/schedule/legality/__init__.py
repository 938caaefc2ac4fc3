"""The proof, on every compile, that a schedule keeps every dependence; it shares nothing with what chose the schedule."""
