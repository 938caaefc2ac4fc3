"""Passes over the Kernel IR, from KernelIR to KernelIR."""
