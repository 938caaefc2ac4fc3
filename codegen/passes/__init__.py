"""Passes over the Kernel IR, from Kernel to Kernel."""
