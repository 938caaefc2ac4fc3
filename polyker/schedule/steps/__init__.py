"""Scheduling steps of a person or a search, each a function from a schedule to a schedule."""
