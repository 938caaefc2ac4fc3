"""Loops that run on several threads."""
