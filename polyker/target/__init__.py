"""Processors as data."""
