"""Passes over the Kernel IR for GPUs."""
