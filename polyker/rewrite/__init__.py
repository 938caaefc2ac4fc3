"""Passes from typed program to typed program: they introduce temporaries and statements, and never choose an order."""
